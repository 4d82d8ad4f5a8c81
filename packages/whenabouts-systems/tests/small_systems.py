"""Transcripts, an encoder that knows words by their letters, and small systems to search them with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tests.toy_encoders import DEEDS, SUBJECTS, WIDTH, Letters, Shades, write_talk
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

__all__ = ["DEEDS", "SUBJECTS", "WIDTH", "Letters", "Shades", "write_talk"]


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
