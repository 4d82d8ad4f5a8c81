from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.intake.files import FormatError
from whenabouts.types import Query, UsageError
from whenabouts_bench.relevance.finding import listed_pairs, vector_pairs
from whenabouts_bench.relevance.pairs import (
    ROUNDING,
    PairSettings,
    RelevantPairs,
    read_arrays,
    write_arrays,
)
from whenabouts_bench.relevance.units import Units, detector_of, units_of

KINDS = ("list", "vectors")


@pytest.fixture
def pairs(queries: Any, encoder: Any, extractor: Any) -> Callable[[str], RelevantPairs]:
    units = units_of(queries, detector_of("vp"), extractor, encoder)
    settings = PairSettings("vp", 0.6, "words", "words:1", "pairs:1")
    made = {"list": listed_pairs(units, settings), "vectors": vector_pairs(units, settings)}
    return made.__getitem__


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_symmetric_and_zero_for_a_query_with_itself(kind: str, pairs: Any) -> None:
    rows = np.array([3, 7, 3, 50, 7, 12])
    block = pairs(kind).block(rows)
    assert block.shape == (6, 6) and block.dtype == np.float32
    assert (block == block.T).all()
    assert (block[rows[:, None] == rows[None, :]] == 0).all()
    assert block.min() >= 0 and block.max() <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_equal_captions_of_two_queries_are_relevant_with_confidence_one(
    kind: str, pairs: Any, queries: Any
) -> None:
    texts = [query.text for query in queries]
    twice = [row for row, text in enumerate(texts) if texts.count(text) == 2]
    first = twice[0]
    second = texts.index(texts[first], first + 1)
    assert pairs(kind).block([first, second])[0, 1] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_does_not_depend_on_batch_mates(kind: str, pairs: Any) -> None:
    whole = pairs(kind).block(range(90))
    part = [5, 80, 33]
    np.testing.assert_allclose(pairs(kind).block(part), whole[np.ix_(part, part)], atol=1e-6)


def test_looking_up_a_caption_says_what_blocks_say(pairs: Any) -> None:
    kept, count = pairs("vectors").kept, len(pairs("vectors").captions)
    whole = kept.among(np.arange(count))
    for caption in (0, 17, count - 1):
        others, confidence = kept.of(caption)
        expected = whole[caption].copy()
        expected[caption] = 0
        assert sorted(others.tolist()) == np.flatnonzero(expected).tolist()
        np.testing.assert_allclose(confidence, expected[others], atol=1e-6)


def _apart_by(cosine: float) -> Units:
    """Two captions whose cosine is that number to the last bit."""
    vectors = np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]], np.float32)
    numbers = np.arange(2, dtype=np.int32)
    return Units(
        ("q0", "q1"), numbers, ("one", "another"), np.arange(3), numbers, ("one", "another"), vectors
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_cosine_equal_to_theta_is_relevant_and_the_next_lower_is_not(kind: str) -> None:
    """Equation 7 says "not less than"; theta itself has a tolerance, whose last number counts, too."""
    cosine = np.float32(0.6)
    for reached, threshold in (
        (True, float(cosine)),
        (True, float(cosine) + ROUNDING),
        (False, float(np.nextafter(cosine, np.float32(1))) + ROUNDING),
    ):
        settings = PairSettings("sent", threshold, "words", "words:1")
        made = {"list": listed_pairs, "vectors": vector_pairs}[kind](_apart_by(float(cosine)), settings)
        assert (made.block([0, 1])[0, 1] > 0) == reached


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_has_an_empty_block(kind: str, pairs: Any) -> None:
    assert pairs(kind).block([]).shape == (0, 0)


def test_rows_that_do_not_exist_and_ids_that_are_unknown_are_refused(pairs: Any) -> None:
    with pytest.raises(UsageError, match="rows 3 to 90: there are 90 queries"):
        pairs("list").block([3, 90])
    with pytest.raises(UsageError, match="rows -1"):
        pairs("list").block([-1, 4])
    with pytest.raises(UsageError, match="query 'nobody' is not among the 90 queries"):
        pairs("list").rows(["q1", "nobody"])
    assert pairs("list").rows(["q4", "q0"]).tolist() == [4, 0]


def test_a_query_whose_text_has_changed_is_refused(pairs: Any, queries: Any) -> None:
    pairs("list").check(queries)
    with pytest.raises(
        UsageError, match=r"query 'q3': the relevant pairs were made of .* say 'something else'"
    ):
        pairs("list").check([Query("q3", "something else")])


def test_a_threshold_that_no_cosine_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"threshold 1\.5"):
        PairSettings("vp", 1.5, "a", "b")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_and_opened_answers_the_same(kind: str, pairs: Any, tmp_path: Path) -> None:
    made = pairs(kind)
    made.save(tmp_path / "x.pairs")
    found = RelevantPairs.open(tmp_path / "x.pairs")
    assert found.settings == made.settings and found.query_ids == made.query_ids
    assert found.captions == made.captions
    np.testing.assert_array_equal(found.block(range(90)), made.block(range(90)))
    assert [file.name for file in tmp_path.iterdir()] == ["x.pairs"]


def test_the_list_is_mapped_and_not_read_at_once(pairs: Any, tmp_path: Path) -> None:
    pairs("list").save(tmp_path / "x.pairs")
    columns = RelevantPairs.open(tmp_path / "x.pairs").kept.arrays()["columns"]
    maps = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in maps if line.endswith("x.pairs")]
    assert any(int(low, 16) <= columns.ctypes.data < int(high, 16) for low, high in ranges)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.999])
def test_a_file_that_is_cut_off_is_refused(share: float, pairs: Any, tmp_path: Path) -> None:
    file = tmp_path / "x.pairs"
    pairs("list").save(file)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(FormatError, match="is not a file of relevant pairs, or is cut off"):
        RelevantPairs.open(file)


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        RelevantPairs.open(tmp_path / "none.pairs")
    write_arrays(tmp_path / "other", {"a": np.zeros(3, np.float32)}, {"whenabouts": "something"})
    with pytest.raises(FormatError, match=r"another kind or version.*relevant pairs, version 1"):
        RelevantPairs.open(tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("caption_of", lambda array: array + 1000),
        ("starts", lambda array: array[::-1].copy()),
        ("starts", lambda array: array[:-1].copy()),
        ("confidence", lambda array: array[:-1].copy()),
        ("query_ids", lambda array: np.frombuffer(json.dumps(["a"] * 90).encode(), np.uint8)),
    ],
    ids=["captions outside", "falling starts", "short starts", "short confidence", "equal ids"],
)
def test_parts_that_do_not_fit_together_are_refused(
    name: str, change: Callable[[NDArray[Any]], NDArray[Any]], pairs: Any, tmp_path: Path
) -> None:
    file = tmp_path / "x.pairs"
    pairs("list").save(file)
    arrays, about = read_arrays(file)
    write_arrays(tmp_path / "y.pairs", {**arrays, name: change(arrays[name])}, about)
    with pytest.raises(FormatError, match="do not fit together"):
        RelevantPairs.open(tmp_path / "y.pairs")


def test_a_missing_or_invalid_part_is_named(pairs: Any, tmp_path: Path) -> None:
    pairs("list").save(tmp_path / "x.pairs")
    arrays, about = read_arrays(tmp_path / "x.pairs")
    write_arrays(tmp_path / "y.pairs", arrays, {**about, "kept": "heap"})
    with pytest.raises(FormatError, match=r"a part is missing or invalid \(unknown kind 'heap'\)"):
        RelevantPairs.open(tmp_path / "y.pairs")
    del arrays["columns"]
    write_arrays(tmp_path / "y.pairs", arrays, about)
    with pytest.raises(FormatError, match=r"a part is missing or invalid \('columns'\)"):
        RelevantPairs.open(tmp_path / "y.pairs")


def test_nothing_is_left_where_writing_fails(pairs: Any, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is not a regular file"):
        pairs("list").save(tmp_path)
    assert list(tmp_path.iterdir()) == []
