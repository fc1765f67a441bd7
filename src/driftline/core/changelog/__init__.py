"""What a table remembers: its changes, who made them, and the batches that it has."""
