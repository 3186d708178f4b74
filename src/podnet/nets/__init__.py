"""Networks: backbones, classifiers that grow, the two as one `Network`, and convolutions of our own for CPUs.

May import the modules at the top of the package, nothing else of it.
"""
