"""Learning: the learner with all its state, the one epoch loop, passes without gradients, devices, several processes.

May import `data`, `nets`, `scenario`, `memory` and `methods`.
"""
