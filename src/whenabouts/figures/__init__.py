"""Figures as files: how sure answers are, and what is lost among distractors; with the extra `report`."""
