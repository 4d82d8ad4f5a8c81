"""The systems that ship for `whenabouts bench`, one a file; the folder is the registry.

A module here, or one that the entry points `whenabouts.systems` name, has NAME, SUMMARY and
`make(**settings)`, whose settings are texts (`--set NAME=VALUE`).
"""
