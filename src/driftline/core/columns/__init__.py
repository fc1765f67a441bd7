"""The columns of one field side by side, and what they are as one."""
