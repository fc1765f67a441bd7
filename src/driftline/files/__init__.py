"""Text files: recognized, decompressed, decoded, and read by ranges of lines."""
