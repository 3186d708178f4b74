"""What is learned when: the order of the classes, and the tasks they come in. May import `data`."""
