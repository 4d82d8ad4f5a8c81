"""Imprecise queries: descriptions with general words in place of person names (paper 004, section 3.1)."""
