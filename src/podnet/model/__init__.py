"""Your own classifier: a file that learns classes from photos, predicts, forgets, is exported; and the estimator.

May import `engine` and all below it.
"""
