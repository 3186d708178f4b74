"""Networks: backbones, classifiers that grow, the two as one `Network`, and convolutions of our own for CPUs.

May import `data` (for the size of timm's images) and the modules at the top.
"""
