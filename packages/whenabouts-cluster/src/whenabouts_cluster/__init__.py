"""Indexing and serving on a Ray cluster."""

__version__ = "0.1.0.dev0"
