"""Readers, which run in tasks: bytes to records, observed and converted."""
