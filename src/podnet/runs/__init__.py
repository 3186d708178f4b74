"""Experiments: their options, the only task loop, the evaluation after each task, and the run folder.

May import `engine` and all below it. `folder` needs no torch, so that code which only reads runs starts fast.
"""
