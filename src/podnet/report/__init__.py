"""Tables and pictures of runs. Reads run folders; knows nothing of torch."""
