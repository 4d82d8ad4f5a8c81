"""What a person looks at: why a trained system answered a query as it did.

`told.py` is what is told: the words that a system heeded, where it thinks a moment starts and ends, its best
moments. `asking.py` gets it from a system, `split.py` for a query of a data set (for a corpus:
`corpus.py`). `picture.py` draws it.
"""

from whenabouts.explanation.told import Borders, Explained, Explanation, Heard, Ranked, ranked_of

__all__ = ["Borders", "Explained", "Explanation", "Heard", "Ranked", "ranked_of"]
