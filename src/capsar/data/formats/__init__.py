"""One file per format; each reads a binary stream and yields rows, in memory that does not grow."""
