"""Measures what scores mean on one corpus, with questions made from its words or read from a file."""
