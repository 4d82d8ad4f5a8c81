"""Moments taken away: lists for editors and players, one file per format, and the folder is the registry."""
