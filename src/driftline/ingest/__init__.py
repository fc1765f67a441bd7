"""One batch, all or nothing."""
