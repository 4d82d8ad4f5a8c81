"""The way of a lesson: annotated moments and features -> a trained system in a folder."""
