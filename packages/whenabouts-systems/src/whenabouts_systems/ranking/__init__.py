"""Find moments with a trained system: encode a corpus once, then retrieve, localize and rank for each query.

`encode_corpus` makes a `MemoryCorpus`, a `Ranker` answers queries from it, and `rank_split` does both for a
split of a data set. All of them, and the search of a corpus, use `rank`.
"""

from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus, encode_corpus
from whenabouts_systems.ranking.ranker import Ranker
from whenabouts_systems.ranking.split import rank_split

__all__ = ["MemoryCorpus", "Ranker", "encode_corpus", "rank_split"]
