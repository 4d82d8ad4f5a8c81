"""The default guideline of a new task set. Annotators read the set's `guideline.md`, which can be edited."""

GUIDELINE = """\
# How well does the moment answer the query?

You see one query and one moment of a video at a time. Judge by what the moment itself shows, not by what may
come before or after it, and not by who the persons are. Three things count:

- **What happens:** is it what the query says?
- **Whether it is seen:** does it happen in clear view, from its beginning to its end?
- **How much of the moment it fills:** is anything else in it, is anything cut off?

| grade | when |
| --- | --- |
| 4 | A perfect answer. All that the query says happens, in clear view, and the moment holds no more. |
| 3 | A good answer with one small fault: a detail is missing, or there is something else at its borders. |
| 2 | Part of an answer. Only a part of what the query says happens, or much is missing, hidden or too much. |
| 1 | Something in it belongs to the query, but not the main thing that happens. |
| 0 | Nothing in it belongs to the query. |

An example, "A person gets up and goes to the board": one or two people get up and go to the board: 4. The
same with other scenes around it: 3. A man goes to the board, nobody gets up: 2. A man, and a board, and
neither has to do with the other: 1. A person who does nothing of what the query says: 0. That somebody is
there is no answer.

When in doubt between two grades, take the lower one.
"""
"""Grades and aspects as in paper 004, appendix B.1, in our words."""
