"""Tables, plots and the HTML page of runs; no torch. May import `runs.folder`, `io` and the modules at the top."""
