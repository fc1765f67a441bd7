"""Spark and its JVM: found, configured, started; their output, in one sentence."""
