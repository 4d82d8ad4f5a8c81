"""Attacks by chance, for hours: `make attack`. A finding names the seed that made it."""
