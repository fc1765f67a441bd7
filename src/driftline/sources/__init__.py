"""Sources: the places of a batch's records."""
