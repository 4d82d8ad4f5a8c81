"""Transcripts, an encoder that knows words by their letters, and small systems to search them with."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import (
    ClipBatch,
    QueryBatch,
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)
from whenabouts_systems.models.trained import Trained

WIDTH = 16
SUBJECTS = ("beetle", "penguin", "glacier", "violin", "harbour", "clock", "lantern", "orchard")
DEEDS = ("sleeps in the sun", "moves to the north", "breaks at night", "is painted red")


class Letters:
    """An encoder: each word is a direction of its own, a sentence their sum."""

    name, fingerprint, dimension = "letters-16", f"letters weights={'a' * 64}", WIDTH

    def encode_tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        words = [["[CLS]", *text.lower().split()] for text in texts]
        return [np.stack([self._word(word.strip(".,")) for word in some]) for some in words]

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        sums = [rows.sum(0) for rows in self.encode_tokens(texts)]
        return np.stack([row / np.linalg.norm(row) for row in sums]) if sums else np.zeros((0, WIDTH), "f4")

    def _word(self, word: str) -> NDArray[np.float32]:
        rng = np.random.default_rng(zlib.crc32(word.encode()))
        return rng.standard_normal(WIDTH).astype(np.float32)


class Shades:
    """An encoder of pictures: how bright each of eight stripes is; a sentence is a direction of its own."""

    name, fingerprint, dimension, image_size = "shades", "shades:1", 8, 32

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        stripes = [np.array_split(image.astype(np.float32), self.dimension) for image in images]
        shades = np.array([[1.0 + stripe.mean() for stripe in own] for own in stripes], np.float32)
        unit: NDArray[np.float32] = shades / np.linalg.norm(shades, axis=1, keepdims=True)
        return unit

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [
            np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dimension) for text in texts
        ]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


def write_talk(folder: Path, number: int, again: str = "") -> Path:
    """A transcript of four sentences with gaps between them."""
    path = folder / f"talk_{number:03d}.vtt"
    subject = SUBJECTS[number % len(SUBJECTS)]
    cues = [
        f"00:{10 * at + 1:02d}.000 --> 00:{10 * at + 5 + number % 4:02d}.000\n"
        f"The {subject} {number} {again}{deed}.\n"
        for at, deed in enumerate(DEEDS)
    ]
    path.write_text("WEBVTT\n\n" + "\n".join(cues))
    return path


def inputs(**changes: object) -> Inputs:
    """What the small systems read: words by `Letters`, clips of 2 seconds."""
    told = StreamInput(WIDTH, True, Letters.name, Letters.fingerprint)
    query = StreamInput(WIDTH, True, Letters.name, f"{Letters.fingerprint}:tokens")
    return Inputs(**{"query": query, "streams": {"subtitle": told}, "clip_seconds": 2.0, **changes})  # type: ignore[arg-type]


def small_system(name: str, seed: int = 0, **changes: object) -> Trained:
    """A system with random weights, large enough ones that its scores differ."""
    torch.manual_seed(seed)
    settings = {"streams": {"subtitle": WIDTH}, "query_width": WIDTH, "hidden": 32, "initializer_range": 0.2}
    model = new_model(name, config_of(name, settings)).eval()
    return Trained(name, model, inputs(**changes), Decoding(max_clips=6))


def small_xml(seed: int = 0, **changes: object) -> Trained:
    """A small XML."""
    return small_system("xml", seed, **changes)


@dataclass(frozen=True)
class PairsConfig:
    """The settings of `Pairs`."""

    scale: float = 4.0


class Pairs(nn.Module):
    """A system that must see query and video together: no keys, and it chooses no videos."""

    video_weight = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.config = PairsConfig()
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        mean = queries.tokens.sum(1) / queries.mask.sum(1, keepdim=True)
        return QueryEncoding({}, {"mean": mean})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        return VideoEncoding(videos.mask, parts={"clips": videos.streams["subtitle"] + self.bias})

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        scores = self.config.scale * torch.einsum("pd,ptd->pt", queries.parts["mean"], videos.parts["clips"])
        return SpanScores(scores, scores, videos.mask)


class Chooser(nn.Module):
    """A system that chooses videos only; its keys are two a video, and of no unit length."""

    def __init__(self) -> None:
        super().__init__()
        self.config = PairsConfig()
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        return QueryEncoding({"subtitle": queries.tokens.sum(1) + self.bias})

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        rows = videos.streams["subtitle"]
        keys = torch.stack([3 * rows.sum(1), rows.amax(1)], 1)
        mask = torch.ones(len(rows), 2, dtype=torch.bool)
        return VideoEncoding(videos.mask, {"subtitle": keys}, {"subtitle": mask})

    def score_videos(self, queries: QueryEncoding, videos: VideoEncoding) -> Tensor:
        scores: Tensor = torch.einsum("qd,vkd->qvk", queries.search["subtitle"], videos.keys["subtitle"])
        return scores.amax(-1)
