from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.relevance.finding import listed_pairs, vector_pairs
from whenabouts_bench.relevance.pairs import PairSettings
from whenabouts_bench.relevance.summary import draw_summary, summarise
from whenabouts_bench.relevance.units import detector_of, units_of


@pytest.fixture
def both(queries: Any, encoder: Any, extractor: Any) -> Any:
    units = units_of(queries, detector_of("vp"), extractor, encoder)
    settings = PairSettings("vp", 0.6, "words", "words:1", "pairs:1")
    return units, listed_pairs(units, settings), vector_pairs(units, settings)


def test_counts_are_those_of_the_whole_block(both: Any) -> None:
    units, listed, _ = both
    found = summarise(listed, units)
    relevant = listed.block(range(90)) > 0
    assert found.query_pairs == relevant.sum() // 2
    first = np.unique(units.caption_of, return_index=True)[1]
    among = relevant[np.ix_(first, first)]
    assert found.pairs == among.sum() // 2 == sum(found.confidence)
    assert found.per_caption == (among.sum(1).mean(), np.median(among.sum(1)), among.sum(1).max())
    assert found.share == pytest.approx(among.sum() / (len(first) * (len(first) - 1)))


def test_a_sample_of_all_captions_counts_the_same(both: Any) -> None:
    units, listed, vectors = both
    exact, sampled = summarise(listed, units), summarise(vectors, units)
    assert sampled.sampled and not exact.sampled
    assert (sampled.pairs, sampled.query_pairs, sampled.share) == pytest.approx(
        (exact.pairs, exact.query_pairs, exact.share)
    )


def test_parts_that_stand_in_many_captions_are_told(both: Any) -> None:
    units, listed, _ = both
    text, count = summarise(listed, units).common[0]
    assert count == sum(
        caption.split()[-1] == text or caption.endswith(f" {text}") for caption in units.captions
    )


def test_examples_are_relevant_by_the_parts_they_show(both: Any) -> None:
    units, listed, _ = both
    examples = summarise(listed, units, examples=5).examples
    assert 2 <= len(examples) <= 5
    for one in examples:
        assert one.cosine >= 0.6 - 1e-6
        assert one.part_of_first.split()[-1] in one.first and one.part_of_second.split()[-1] in one.second
    assert [one.confidence for one in examples] == sorted(one.confidence for one in examples)


@pytest.mark.slow
def test_the_picture_is_written_whole(both: Any, tmp_path: Path) -> None:
    units, listed, _ = both
    draw_summary(summarise(listed, units), "made", tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(FormatError, match="cannot be written"):
        draw_summary(summarise(listed, units), "made", tmp_path / "x.png" / "y.png")
    with pytest.raises(UsageError, match=r"must end in \.png, \.svg, \.pdf"):
        draw_summary(summarise(listed, units), "made", tmp_path / "x.zzz")
