"""Speed measurements (`podnet bench`): our loops and plain ones, in one run. May import `runs`, `model` and below."""
