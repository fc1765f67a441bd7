"""Reports about batches and tables, for people and programs."""
