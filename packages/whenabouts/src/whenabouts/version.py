"""The version of all four packages."""

__version__ = "0.1.0.dev0"
