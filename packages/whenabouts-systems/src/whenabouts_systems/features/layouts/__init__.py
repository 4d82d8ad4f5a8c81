"""Layouts of features on disk, a file a layout; `features.Layout` says what each declares."""
