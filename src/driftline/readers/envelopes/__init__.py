"""Envelopes of change streams: each message says what became of which record (section 11.7)."""
