"""Spark and its Java: found, configured, started; and what they print, in one sentence."""
