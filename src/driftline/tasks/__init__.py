"""Runs tasks on Spark's workers, with a folder for the files of a batch."""
