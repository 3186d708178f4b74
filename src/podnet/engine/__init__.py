"""Learning: the learner and its state, the epoch loop, passes without gradients, devices, several processes.

May import `data`, `nets`, `scenario`, `memory` and `methods`.
"""
