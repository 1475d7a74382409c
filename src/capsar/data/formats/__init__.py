"""One file per format. Readers of files yield rows from a binary stream in constant memory."""
