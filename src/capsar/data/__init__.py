"""Files -> `Example`: readers, the catalog of named datasets, splits, the doctor. No torch."""
