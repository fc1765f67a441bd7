"""Table formats behind one small front: load the schema with ids,
change it and append in one commit, read.
"""
