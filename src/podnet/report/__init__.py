"""Tables, plots and the HTML page of runs; no torch.

May import what of `runs` needs no torch, `io` and the modules at the top.
"""
