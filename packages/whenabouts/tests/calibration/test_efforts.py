"""Which queries choose how much of a vector index is probed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.toy_encoders import Letters

from whenabouts.calibration import efforts
from whenabouts.confidence.background import SENTENCES
from whenabouts.index import upkeep
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store

CLIPS = 120


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two streams with a trained vector index; words search only the first."""
    monkeypatch.setattr(upkeep, "INDEX_ROWS", 100)
    monkeypatch.setattr(upkeep, "PARTITION_ROWS", 20)
    store, at = Store.open(tmp_path / "small.corpus", create=True), np.arange(float(CLIPS))
    rows = np.random.default_rng(0).standard_normal((CLIPS, Letters.dimension)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    clips = ClipColumns(at, at + 1, vectors=rows)
    for name in ("vision", "likeness"):
        store.add_stream(StreamInfo(name, "letters", name, Letters.dimension))
    video = VideoRecord("film", "/film.mp4", size=1, streams={"vision": "vision", "likeness": "likeness"})
    store.put_video(video, {"vision": clips, "likeness": clips})
    store.optimize()
    return store


@pytest.mark.slow
def test_a_stream_is_measured_once_its_encoder_is_there_and_others_by_their_clips(store: Store) -> None:
    asked: list[str] = []

    class Heard(Letters):
        def encode_text(self, texts: Any) -> Any:
            asked.extend(texts)
            return super().encode_text(texts)

    assert list(store.streams_without_effort) == ["vision", "likeness"]
    efforts.measure(store, {})
    assert list(store.streams_without_effort) == ["vision"], "words cannot search the other stream"
    efforts.measure(store, {"vision": Heard()})
    assert not store.streams_without_effort
    assert asked == list(SENTENCES)
    efforts.measure(store, {"vision": Heard()})
    assert len(asked) == len(SENTENCES), "an index that was measured waits for no queries"
