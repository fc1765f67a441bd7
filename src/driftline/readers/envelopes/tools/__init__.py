"""Envelopes of tools, one file for each: rules of what a message does, and where it stood."""
