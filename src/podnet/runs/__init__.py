"""Experiments: their options, the one task loop, what is measured after a task, and the run folder that records it.

May import `engine` and all below it. `folder` needs no torch, so that what only reads runs starts fast.
"""
