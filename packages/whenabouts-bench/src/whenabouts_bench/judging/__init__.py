"""Graded judgements of moments by several annotators: task sets, journal, consensus, agreement, exam."""
