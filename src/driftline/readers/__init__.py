"""Readers of formats, as tasks run them: bytes to records, observed and converted."""
