"""Measuring on one corpus what its scores mean, with questions made of it or read from a file."""
