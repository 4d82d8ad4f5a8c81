"""What a person looks at: why a trained system answered a query as it did.

`explained.py` is the content: the weights of the query's words, where a moment starts and ends, the best
moments. `readout.py` gets it from a system; `split.py` for a query of a data set, `corpus.py` for a query to
one's own videos. `picture.py` draws it.
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
