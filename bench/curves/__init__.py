"""How time and memory grow: what is measured, the data for it, and what the curves say."""
