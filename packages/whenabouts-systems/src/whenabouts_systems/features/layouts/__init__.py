"""Layouts of features on disk, one in each file, loaded by `features`; see `features.Layout`."""
