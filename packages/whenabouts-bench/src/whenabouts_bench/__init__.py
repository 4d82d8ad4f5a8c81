"""Build and measure benchmarks: formats, data sets, relevance, judging, evaluation. No trained systems."""

__version__ = "0.1.0.dev0"
