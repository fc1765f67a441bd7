"""Table formats behind one interface: load a schema with ids, change it, append, commit, read."""
