"""The page: runs as they grow, a model and what it knows, teaching by hand. It reads what the command line writes."""
