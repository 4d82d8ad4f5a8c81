"""A self-contained page that shows where a run fails, and what changed between two runs."""

from whenabouts_bench.report.page import Written, write_report

__all__ = ["Written", "write_report"]
