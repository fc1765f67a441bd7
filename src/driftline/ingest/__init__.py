"""Ingests one batch, all or nothing."""
