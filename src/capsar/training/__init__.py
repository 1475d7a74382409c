"""Data and network -> a trained bundle: batches, the loop, checkpoints, runs."""
