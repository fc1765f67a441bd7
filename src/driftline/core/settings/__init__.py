"""Settings that people choose: of a table, its paths, its key, its layout and its CSV dialect."""
