"""What is kept of old classes: exemplars, how they are chosen, the means of their features. May import `data`."""
