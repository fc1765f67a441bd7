"""The lake in a browser: pages that read it, on an address of this machine, behind a token."""
