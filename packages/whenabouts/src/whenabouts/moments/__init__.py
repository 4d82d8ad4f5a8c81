"""Moments from a curve of scores, and one order from several streams; NumPy only, nothing is trained."""
