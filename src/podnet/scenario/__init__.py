"""The order of the classes, and the tasks they form. May import `data`."""
