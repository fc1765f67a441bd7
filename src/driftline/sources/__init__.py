"""Sources: where the records of a batch are."""
