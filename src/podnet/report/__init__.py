"""Tables, plots and the HTML page of runs. Reads run folders; needs no torch. May import `runs.folder` and `metrics`."""
