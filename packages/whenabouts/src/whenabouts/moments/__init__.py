"""Finds moments in curves of clip scores, and fuses the scores of words and vectors, without training."""
