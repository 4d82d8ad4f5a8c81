"""whenabouts itself as a system: it indexes the videos and transcripts of the data folder, and searches them.

The corpus lies in a temporary folder, which is removed with the system. With `vision`, files of videos are
read (and transcripts beside them). Without it, only a video's transcript is read, or its file if it has none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whenabouts.checkers import CheckerUnavailable, Reranker, Rewriter, open_reranker
from whenabouts.checkers.reranker import Document
from whenabouts.corpus import Corpus
from whenabouts.export.transcript import transcript
from whenabouts.search.sounds_alike import opened_rewriter
from whenabouts.types import UsageError
from whenabouts.version import __version__
from whenabouts.video.cue import Cue
from whenabouts_bench.harness.results import public
from whenabouts_bench.harness.system import BenchQuery, BenchVideo

NAME = "whenabouts"
SUMMARY = (
    "whenabouts over videos and transcripts; --set vision=NAME, text=NAME, rerank=NAME, "
    "rewrite=sound or ADDRESS#MODEL (with send_query=yes for another machine)"
)
_SECONDS = 3600.0
"""The time limit of the reranker for one query."""


class Whenabouts:
    """A corpus of the task's videos, and its search."""

    def __init__(
        self,
        options: dict[str, Any],
        reranker: Reranker | None = None,
        rewriter: Rewriter | str | None = None,
    ) -> None:
        models = [f"{kind} {model}" for kind, model in public(options).items()]
        models += [f"rerank {reranker.name}"] if reranker else []
        models += [f"rewrite {getattr(rewriter, 'name', rewriter)}"] if rewriter else []
        self.name, self.revision = " + ".join([NAME, *models]), __version__
        # Measured runs are complete: the time of a model is part of the result.
        self._models: dict[str, Any] = {
            "rerank": None if reranker is None else _EndingReranker(reranker),
            "rewrite": _EndingRewriter(rewriter) if rewriter and not isinstance(rewriter, str) else rewriter,
            "rerank_seconds": _SECONDS,
        }
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="whenabouts-bench-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def index(self, videos: Sequence[BenchVideo]) -> None:
        """Make a corpus of the videos. Raises UsageError without files and transcripts."""
        sources = self._folder / "sources"
        sources.mkdir()
        ids: dict[str, str] = {}
        paths = []
        for number, video in enumerate(videos):
            path = self._source(sources / f"{number}", video)
            if path is not None:
                ids[os.path.realpath(path)] = video.id
                paths.append(path)
        if not paths:
            raise UsageError(
                "the data folder has no file and no transcript of the task's videos; put {video id}.mp4 or "
                "{video id}.vtt there"
            )
        self._corpus = Corpus(self._folder / "corpus", create=True)
        self._corpus.add(*paths, **self._options)
        records = {record.video_id: os.path.realpath(record.path) for record in self._corpus.records()}
        self._named = {video_id: ids[path] for video_id, path in records.items()}
        self._own = {name: video_id for video_id, name in self._named.items()}

    def _source(self, stem: Path, video: BenchVideo) -> Path | None:
        """The transcript as WebVTT, or the video's file where pictures are read or no words are there."""
        if video.path is not None and ("vision" in self._options or not video.lines):
            return video.path
        cues = [Cue(start, end, text) for start, end, text in video.lines if start < end]
        if not cues:
            return None
        path = stem.with_suffix(".vtt")
        path.write_bytes(transcript(cues, "vtt"))
        return path

    def search(self, queries: Sequence[BenchQuery], k: int) -> list[list[tuple[Any, ...]]]:
        return [self._search(query, k) for query in queries]

    def _search(self, query: BenchQuery, k: int) -> list[tuple[Any, ...]]:
        within = [self._own[video] for video in query.videos if video in self._own]
        if query.videos and not within:
            return []
        moments = self._corpus.search(query.text, k=k, within=within, literal="all", **self._models).moments
        rows = [(self._named[m.video_id], m.start, m.end, m.score, m.confidence) for m in moments]
        return [row if row[4] is not None else row[:4] for row in rows]

    def index_bytes(self) -> int:
        """Bytes of the corpus's files."""
        return sum(file.stat().st_size for file in (self._folder / "corpus").rglob("*") if file.is_file())


class _EndingReranker:
    """A reranker that raises UsageError if it cannot be used; a search alone would keep the first order."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker, self.name, self.fingerprint = reranker, reranker.name, reranker.fingerprint
        self.reads_words, self.sees = reranker.reads_words, reranker.sees

    def score(self, query: str, documents: Sequence[Document]) -> list[float]:
        with _ending():
            return self._reranker.score(query, documents)


class _EndingRewriter:
    """A rewriter that raises UsageError if it cannot be used; the search handles its other errors."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter, self.name = rewriter, rewriter.name

    def rewritten(self, query: str, seconds: float) -> list[str]:
        with _ending():
            return self._rewriter.rewritten(query, seconds)


@contextmanager
def _ending() -> Iterator[None]:
    try:
        yield
    except CheckerUnavailable as error:
        raise UsageError(str(error)) from error


def make(
    vision: str | None = None,
    text: str | None = None,
    rerank: str | None = None,
    rewrite: str | None = None,
    send_query: str = "no",
) -> Whenabouts:
    """The system. Raises CheckerUnavailable; UsageError for a rewriter elsewhere without `send_query`."""
    if send_query not in ("yes", "no"):
        raise UsageError(f"send_query is {send_query!r}; give yes or no")
    options = {"vision": vision, "text": text}
    return Whenabouts(
        {name: value for name, value in options.items() if value is not None},
        None if rerank is None else open_reranker(rerank),
        None if rewrite is None else opened_rewriter(rewrite, send_query=send_query == "yes"),
    )
