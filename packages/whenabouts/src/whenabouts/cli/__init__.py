"""The command line: a file per verb, which parses, calls the library and prints. `cli.main` loads it by
name.
"""
