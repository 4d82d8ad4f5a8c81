"""Ranking a corpus with a trained system: encode its videos once, then retrieve, localize, rank.

`encode_corpus` makes a `CorpusEncoding`; a `Ranker` answers queries from it; `rank_split` does both for a
split of a data set.
"""

from whenabouts.ranking.corpus import CorpusEncoding, encode_corpus
from whenabouts.ranking.rank import Ranker
from whenabouts.ranking.split import rank_split

__all__ = ["CorpusEncoding", "Ranker", "encode_corpus", "rank_split"]
