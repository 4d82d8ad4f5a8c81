"""A small retriever and a small localizer of PREM with random weights, and the folder of a staged run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.small_systems import WIDTH, inputs

from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import StreamInput
from whenabouts_systems.models.staged import write_stages
from whenabouts_systems.models.trained import Trained

_SMALL = {"streams": {"subtitle": WIDTH}, "query_width": WIDTH, "hidden": 16, "heads": 2, "feedforward": 32}


def small_prem(name: str, seed: int = 0, top_videos: int = 3, **changes: Any) -> Trained:
    """One of PREM's two systems, which reads what the small systems read."""
    torch.manual_seed(seed)
    model = new_model(name, config_of(name, {**_SMALL, "initializer_range": 0.3, **changes})).eval()
    return Trained(name, model, inputs(), Decoding(max_clips=6, top_videos=top_videos))


def small_retriever(seed: int = 0) -> Trained:
    """PREM's retriever."""
    return small_prem("prem_retriever", seed)


def small_localizer(seed: int = 0, top_videos: int = 3, temperature: float = 0.1) -> Trained:
    """PREM's localizer; it looks into so many videos, of which it adds 1 / temperature times the score."""
    return small_prem("prem_localizer", seed, top_videos, temperature=temperature)


def seeing_localizer(encoder: Any, clip_seconds: float) -> Trained:
    """PREM's localizer for what is said and what is seen, pictures by that encoder and as far apart."""
    said = inputs().streams["subtitle"]
    seen = StreamInput(encoder.dimension, True, encoder.name, encoder.fingerprint)
    streams = {"subtitle": WIDTH, "vision": encoder.dimension}
    trained = small_prem("prem_localizer", streams=streams, temperature=0.1)
    told = inputs(streams={"subtitle": said, "vision": seen}, clip_seconds=clip_seconds)
    return Trained(trained.system, trained.model, told, trained.decoding)


def save_pair(folder: Path, retriever: Trained, localizer: Trained) -> Path:
    """A staged run of two systems."""
    retriever.save_pretrained(folder / "first")
    localizer.save_pretrained(folder / "second")
    write_stages(folder, retriever="first", localizer="second")
    return folder
