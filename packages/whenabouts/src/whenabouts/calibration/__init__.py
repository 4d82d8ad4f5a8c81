"""Measuring what scores mean on one corpus, with questions made from it or read from a file."""
