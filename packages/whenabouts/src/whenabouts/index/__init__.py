"""The corpus on disk: index runs, tables, locks, and searches for nearest vectors and matching words."""
