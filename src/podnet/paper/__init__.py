"""The paper's tables and figures (`podnet reproduce`): its numbers as data, the runs they need, engines to run them.

May import `runs`, `report` and all below them.
"""
