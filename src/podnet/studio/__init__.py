"""The web page: live runs, a model and what it knows, teaching by hand. May import `model`, `report` and below."""
