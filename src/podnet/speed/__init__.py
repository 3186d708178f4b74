"""How fast it is: ratios measured side by side on this machine, against the same work done plainly."""
