"""The paper's tables and figures (`podnet reproduce`): its numbers as data, the required runs, engines to run them.

May import `runs`, `report` and all below them.
"""
