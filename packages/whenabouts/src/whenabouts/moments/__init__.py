"""Moments from a curve of scores, and score fusion; NumPy only, nothing is trained."""
