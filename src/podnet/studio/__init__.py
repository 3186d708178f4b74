"""The page: runs as they grow, a model and what it knows, teaching by hand. May import `model`, `report` and below."""
