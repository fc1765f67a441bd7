"""Envelopes of change streams: each message describes a change to a record (section 11.7)."""
