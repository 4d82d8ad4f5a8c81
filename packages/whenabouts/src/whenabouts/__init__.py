"""Find moments in videos: a sentence in, a ranked list of (video, start, end) out.

>>> import whenabouts
>>> corpus = whenabouts.Corpus("my.corpus", create=True)  # doctest: +SKIP
>>> corpus.add("videos/")                                 # doctest: +SKIP
>>> corpus.search("a red flower opens", k=10)             # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whenabouts import moved
from whenabouts.extras import lacking
from whenabouts.version import __version__

if TYPE_CHECKING:
    from whenabouts.corpus import Corpus
    from whenabouts.search.options import SearchOptions
    from whenabouts.search.search_result import SearchResult
    from whenabouts.types import (
        Evidence,
        Judgement,
        Moment,
        Qrels,
        Query,
        Run,
        ScoredMoment,
        UsageError,
        Video,
        WhenaboutsError,
    )

__all__ = [
    "Corpus",
    "Evidence",
    "Judgement",
    "Moment",
    "Qrels",
    "Query",
    "Run",
    "ScoredMoment",
    "SearchOptions",
    "SearchResult",
    "UsageError",
    "Video",
    "WhenaboutsError",
    "__version__",
]

_HOMES = {
    "Corpus": "whenabouts.corpus",
    "SearchOptions": "whenabouts.search.options",
    "SearchResult": "whenabouts.search.search_result",
    "evaluate": "whenabouts_bench.evaluation.evaluate",  # not in __all__: it needs another package
}

moved.install()


def __getattr__(name: str) -> Any:
    # Imports are deferred until a name is used, so that `--help` stays quick.
    if name not in {*__all__, *_HOMES}:
        raise AttributeError(f"module 'whenabouts' has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(_HOMES.get(name, "whenabouts.types")), name)
    except ModuleNotFoundError as error:
        raise ImportError(lacking(error) or str(error)) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})
