"""The command line: a file per verb, loaded by name by `cli.main`, that parses, calls the library, prints."""
