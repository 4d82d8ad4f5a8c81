"""Any system on any task of moment retrieval: run it, keep its answers, and rank systems in one table.

`task.py` says what a task is, `system.py` what a system is. `running.py` brings the two together,
`results.py` is the file that comes of it, and `table.py` the leaderboard of many such files.
"""
