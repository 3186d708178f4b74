"""Networks: backbones, growing classifiers, both combined as a `Network`, and convolutions for CPUs.

May import only io and the modules at the top of the package.
"""
