"""Reports of batches, to people and to programs."""
