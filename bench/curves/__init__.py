"""Growth of time and memory: the jobs that are measured, their data, and the verdicts on the curves."""
