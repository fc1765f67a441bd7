"""One file a policy: which columns a field needs, given what it has and what was seen."""
