"""Train systems: from annotated moments and features to a trained system in a folder."""
