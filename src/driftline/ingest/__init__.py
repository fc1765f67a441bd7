"""Ingests one batch, all or nothing, into one table or into many."""
