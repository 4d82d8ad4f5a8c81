"""`whenabouts stats`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Whenabouts = Callable[..., Any]


def test_numbers_for_programs(whenabouts: Whenabouts, corpus: Path) -> None:
    done = whenabouts("stats")
    stats = done.json
    assert done.code == 0
    keys = {"corpus", "videos", "hours", "bytes", "streams", "calibration", "failed", "gone"}
    keys |= {"indexed_at", "searched", "languages", "not_measured", "choices"}
    assert set(stats) == keys
    assert stats["corpus"] == str(corpus)
    assert stats["videos"] == len(whenabouts("show").json)
    assert 0 < stats["hours"] < 1
    held = sum(path.stat().st_size for path in corpus.rglob("*") if path.is_file())
    assert 0.9 * held < stats["bytes"] < 1.1 * held
    words = stats["streams"]["subtitle"]
    dates = {"first_indexed_at", "last_indexed_at"}
    searched = {"vector_index", "vector_index_recall", "calibrated", "narrows_by"}
    assert set(words) == {"encoder", "clips", "videos"} | searched | dates
    assert (words["vector_index"], words["vector_index_recall"]) == (False, None)
    assert words["first_indexed_at"] <= words["last_indexed_at"] <= stats["indexed_at"]
    assert words["encoder"] == "minilm"
    assert words["clips"] > 15


def test_lines_for_people(whenabouts: Whenabouts) -> None:
    out = whenabouts("stats", "--table").out
    assert "videos" in out and "hours" in out and "MB on disk" in out
    assert "subtitle" in out and "minilm" in out
    assert "pictures were not searched" in out
    assert re.search(r"subtitle: \d+ clips by minilm, indexed 20\d\d-\d\d-\d\d", out)
