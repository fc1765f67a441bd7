"""The columns of one field, side by side or folded into one."""
