"""Lines of judgements and runs by chance: read as moments that make sense, or refused in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.types import WhenaboutsError
from whenabouts_bench import formats
from whenabouts_bench.formats.annotations import Annotations

FEW = settings(max_examples=60)
WORDS = st.sampled_from(
    [
        "q1",
        "Q0",
        "0",
        "v@1-2",
        "v@2-1",
        "v@-1-2",
        "v@1e999-2",
        "@0-1",
        "v",
        "nan",
        "1",
        "-1",
        "9" * 500,
        "\u00a0",
        "x" * 300,
    ]
)
TREC = st.lists(st.lists(WORDS, max_size=7).map(" ".join), max_size=5).map("\n".join)
FIELDS = st.dictionaries(
    st.sampled_from(
        ["query_id", "video_id", "start", "end", "score", "moments", "text", "relevance", "duration"]
    ),
    st.recursive(
        st.none() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["start", "end", "score"]), inner)
        ),
        max_leaves=5,
    ),
)
LINES = st.lists(
    FIELDS.map(json.dumps) | st.sampled_from(["{", "[]", "7", "", '"\\ud800"', "9" * 5000]), max_size=4
)


def read_both(path: Path, content: bytes, kind: str) -> None:
    path.write_bytes(content)
    for read in (formats.read_annotations, formats.open_run):
        found: Any
        try:
            found = read(path, kind)
            blocks = [] if isinstance(found, Annotations) else list(found.blocks(found.tasks[0]))
        except WhenaboutsError as error:
            assert "\n" not in str(error) and "set_int_max" not in str(error)
            continue
        for block in blocks:
            for start, end in zip(block.start, block.end, strict=True):
                assert 0 <= start < end < math.inf or (math.isnan(start) and found.tasks == ("VR",))


@FEW
@given(TREC, st.binary(max_size=2))
def test_trec_lines(tmp_path_factory: pytest.TempPathFactory, text: str, more: bytes) -> None:
    read_both(tmp_path_factory.getbasetemp() / "any.trec", text.encode() + more, "trec")


@pytest.mark.slow
@FEW
@given(LINES)
def test_json_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    read_both(tmp_path_factory.getbasetemp() / "any.jsonl", "\n".join(lines).encode(), "jsonl")
