"""The systems of the papers: models, training, and search with a trained system. Needs PyTorch."""

__version__ = "0.1.0.dev0"
