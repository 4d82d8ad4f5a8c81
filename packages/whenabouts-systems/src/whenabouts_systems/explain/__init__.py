"""Show why a trained system answered a query as it did.

`explained.py` defines the content: the weights of the query's words, the probabilities of start and end, and
the best moments. `readout.py` reads it from a system, for a query of a data set (`split.py`) or of a corpus
(`corpus.py`, `answer.py`). `picture.py` draws it.
"""

from whenabouts_systems.explain.explained import (
    Borders,
    Explained,
    Explanation,
    Ranked,
    TokenWeights,
    ranked_of,
)

__all__ = ["Borders", "Explained", "Explanation", "Ranked", "TokenWeights", "ranked_of"]
