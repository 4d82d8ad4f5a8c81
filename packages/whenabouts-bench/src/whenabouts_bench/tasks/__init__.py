"""The tasks that ship, one benchmark a file; the folder is the registry.

A module here, or one that the entry points `whenabouts.tasks` name, has `TASKS`.
"""
