"""Where records come from. Each source observes itself, and gives its records as columns of the table."""
