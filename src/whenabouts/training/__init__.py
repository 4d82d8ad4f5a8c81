"""The way of an example: annotated moments and features -> a trained system in a folder."""
