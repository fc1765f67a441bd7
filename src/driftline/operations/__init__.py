"""Operations on a table, one file each; ingesting has a package of its own."""
