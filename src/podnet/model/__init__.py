"""A user's own classifier: one file that learns classes from photos, predicts, and can forget them again."""
