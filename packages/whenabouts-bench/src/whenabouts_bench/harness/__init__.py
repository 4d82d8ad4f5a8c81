"""`whenabouts bench`: run any system on any task of moment retrieval, and compare systems in a leaderboard.

`task.py` defines tasks, `system.py` systems. `running.py` runs a system on a task, `results.py` defines the
file of the results, and `table.py` makes the leaderboard from such files.
"""
