"""One self-contained page that shows where a run fails, and what changed between two runs."""
