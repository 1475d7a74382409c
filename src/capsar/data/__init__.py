"""Read data files as examples: readers, the dataset catalog, splits, validation. No torch."""
