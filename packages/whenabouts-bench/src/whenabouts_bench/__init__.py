"""Formats, data sets, relevance, judging and evaluation. It knows no trained system."""

__version__ = "0.1.0.dev0"
