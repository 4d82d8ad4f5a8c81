"""Find moments in videos: a sentence in, a ranked list of (video, start, end) out.

>>> import cuepoint
>>> corpus = cuepoint.Corpus("my.corpus")          # doctest: +SKIP
>>> corpus.add("videos/")                          # doctest: +SKIP
>>> corpus.search("a red flower opens", k=10)      # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from cuepoint.corpus import Corpus
    from cuepoint.evaluation.evaluate import evaluate
    from cuepoint.search import SearchResult
    from cuepoint.types import (
        CuepointError,
        Evidence,
        Judgement,
        Moment,
        Query,
        ScoredMoment,
        UsageError,
        Video,
    )

__all__ = [
    "Corpus",
    "CuepointError",
    "Evidence",
    "Judgement",
    "Moment",
    "Query",
    "ScoredMoment",
    "SearchResult",
    "UsageError",
    "Video",
    "__version__",
    "evaluate",
]

_HOMES = {
    "Corpus": "cuepoint.corpus",
    "SearchResult": "cuepoint.search",
    "evaluate": "cuepoint.evaluation.evaluate",
}


def __getattr__(name: str) -> Any:
    # The package imports nothing until something is asked for, so that `--help` stays quick.
    if name not in __all__:
        raise AttributeError(f"module 'cuepoint' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "cuepoint.types")), name)
