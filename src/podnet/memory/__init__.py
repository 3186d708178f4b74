"""What is kept of old classes: exemplars, how they are chosen, and their mean features. May import `data`."""
