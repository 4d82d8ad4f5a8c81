"""The way of a training step: annotated moments and features -> a trained system in a folder."""
