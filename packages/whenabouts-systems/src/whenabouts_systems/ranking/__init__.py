"""Moments by a trained system: a corpus encoded once, then retrieved, localized and ranked for any queries.

`encode_corpus` makes a `MemoryCorpus`; a `Ranker` answers queries from it; `rank_split` does both for a split
of a data set. `rank` is what all of these, and a search of one's own videos, come to in the end.
"""

from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, encode_corpus
from whenabouts_systems.ranking.ranker import Ranker
from whenabouts_systems.ranking.split import rank_split

__all__ = ["MemoryCorpus", "Ranker", "encode_corpus", "rank_split"]
