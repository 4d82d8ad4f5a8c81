"""A small corpus, and a system whose scores are known by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.small_systems import Letters, write_talk
from torch import nn

from whenabouts import Corpus
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.protocol import (
    ClipBatch,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
    max_over_keys,
)
from whenabouts_systems.ranking import MemoryCorpus, encode_corpus

Indices = NDArray[np.int64]
WIDTH = 6


class Retrieving(nn.Module):
    """Chooses videos by its keys: the clips themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.dropout = nn.Dropout(0.5)
        self.encoded: list[int] = []

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        vectors = self.dropout((queries.tokens * queries.mask[..., None]).sum(1)) * self.weight
        return QueryEncoding({"vision": vectors}, {"turned": vectors.flip(-1)})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        self.encoded.append(len(videos))
        clips = self.dropout(videos.streams["vision"]) * self.weight
        return VideoEncoding(videos.mask, {"vision": clips}, {"vision": videos.mask}, {"clips": clips})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> torch.Tensor:
        return max_over_keys(queries, videos)


class Localizing(Retrieving):
    """Finds moments by borders, too."""

    video_weight = 3.0

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        start = torch.einsum("pd,ptd->pt", queries.search["vision"], videos.parts["clips"])
        end = torch.einsum("pd,ptd->pt", queries.parts["turned"], videos.parts["clips"])
        return SpanScores(start, end, videos.mask)


class Mapping2D(Localizing):
    """Finds the same moments by a map of spans."""

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        borders = super().score_spans(queries, videos)
        spans = borders.start[:, :, None] + borders.end[:, None]
        return SpanScores(torch.zeros_like(borders.start), torch.zeros_like(borders.end), videos.mask, spans)


class OnlyLocalizing(nn.Module):
    """A localizer that chooses no videos."""

    video_weight = 3.0

    def __init__(self) -> None:
        super().__init__()
        self.whole = Localizing()
        self.encode_queries = self.whole.encode_queries
        self.encode_videos = self.whole.encode_videos
        self.score_spans = self.whole.score_spans


KINDS: dict[str, Callable[[], Any]] = {
    "borders": Localizing,
    "map": Mapping2D,
    "retriever": Retrieving,
    "localizer": OnlyLocalizing,
}


@dataclass
class Toy:
    """A trained system, and the features of its corpus: whole numbers, so that all sums are exact."""

    model: Any
    clips: Indices
    videos: list[NDArray[np.float32]]
    tokens: NDArray[np.float32]
    decoding: Decoding = field(default_factory=lambda: Decoding(top_videos=4, spans_per_query=12))
    system: str = "toy"
    clip_seconds: float = 2.0

    @classmethod
    def made(cls, kind: str = "borders", *, queries: int = 9, videos: int = 13, seed: int = 0) -> Toy:
        rng = np.random.default_rng(seed)
        clips = rng.integers(1, 9, videos)
        rows = [rng.integers(-3, 4, (count, WIDTH)).astype(np.float32) for count in clips.tolist()]
        tokens = rng.integers(-3, 4, (queries, 2, WIDTH)).astype(np.float32)
        return cls(KINDS[kind](), clips, rows, tokens)

    @property
    def video_ids(self) -> list[str]:
        """In an order that is not that of the ids."""
        return [f"v{(7 * at + 3) % len(self.videos):02d}" for at in range(len(self.videos))]

    @property
    def query_ids(self) -> list[str]:
        return [f"q{at}" for at in range(len(self.tokens))]

    @property
    def durations(self) -> NDArray[np.float64]:
        """A clip may begin at the end, or end behind it."""
        seconds = self.clips.astype(np.float64) * self.clip_seconds
        return seconds - np.arange(len(self.clips)) % 3

    def clips_of(self, rows: Indices) -> ClipBatch:
        longest = max(int(self.clips[row]) for row in rows)
        block = np.zeros((len(rows), longest, WIDTH), np.float32)
        mask = np.arange(longest) < self.clips[rows][:, None]
        for at, row in enumerate(rows):
            block[at, : self.clips[row]] = self.videos[row]
        return ClipBatch({"vision": torch.from_numpy(block)}, torch.from_numpy(mask))

    def queries(self, rows: Indices) -> QueryBatch:
        tokens = torch.from_numpy(self.tokens[rows])
        return QueryBatch(tokens, torch.ones(tokens.shape[:2], dtype=torch.bool))

    def corpus(self, **more: Any) -> MemoryCorpus:
        return encode_corpus(
            self.model,
            self.clips_of,
            self.video_ids,
            clips=self.clips,
            clip_seconds=self.clip_seconds,
            durations=self.durations,
            **more,
        )


@pytest.fixture(autouse=True, scope="module")
def _trained_systems_only(unmeasured: None) -> None:
    """What unrelated sentences score plays no part where a trained system answers."""


@pytest.fixture
def toy() -> Callable[..., Toy]:
    return Toy.made


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nine transcripts (`talks`) and their corpus (`my.corpus`); to be copied."""
    place = tmp_path_factory.mktemp("indexed")
    (place / "talks").mkdir()
    for number in range(9):
        write_talk(place / "talks", number)
    Corpus(place / "my.corpus", encoders=[Letters()], create=True).add(
        place / "talks", text=Letters(), processes=1
    )
    return place


@pytest.fixture
def folder(indexed: Path) -> Iterator[Path]:
    """The transcripts where they were indexed; what a test changes in them is undone."""
    place = indexed / "talks"
    kept = {path: path.read_bytes() for path in place.iterdir()}
    yield place
    for path in place.iterdir():
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)


@pytest.fixture
def corpus(indexed: Path, folder: Path, tmp_path: Path) -> Corpus:
    """A copy of the corpus."""
    return Corpus(shutil.copytree(indexed / "my.corpus", tmp_path / "my.corpus"), encoders=[Letters()])
