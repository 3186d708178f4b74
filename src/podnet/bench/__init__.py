"""How fast it is (`podnet bench`): our loops beside plain ones, in one run. May import `runs`, `model` and below."""
