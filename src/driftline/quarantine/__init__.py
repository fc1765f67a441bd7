"""Quarantines: the records that a table could not take, kept whole."""
