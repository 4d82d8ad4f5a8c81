"""Imprecise queries: descriptions in which names of persons became general words (paper 004, section 3.1)."""
