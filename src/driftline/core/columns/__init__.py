"""The columns of one field, side by side and as one."""
