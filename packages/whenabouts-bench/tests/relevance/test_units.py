from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from whenabouts.types import Query, UsageError
from whenabouts_bench.relevance.units import detector_of, encoded, units_of


def test_distinct_texts_are_encoded_once(encoder: Any, extractor: Any) -> None:
    queries = [Query("a", "man opens door"), Query("b", " man opens door "), Query("c", "dog opens door")]
    units = units_of(queries, detector_of("vp"), extractor, encoder)
    assert units.captions == ("man opens door", "dog opens door")
    assert units.caption_of.tolist() == [0, 0, 1]
    assert sorted(encoder.asked) == ["dog opens door", "door", "man opens door", "opens door"]
    assert [units.texts[unit] for unit in units.units] == [
        "man opens door", "opens door", "door", "dog opens door", "opens door", "door",
    ]  # fmt: skip


def test_vectors_stand_in_the_order_of_their_texts(encoder: Any) -> None:
    texts = ["a long sentence of words", "b", "two words", "c"]
    np.testing.assert_array_equal(encoded(texts, encoder), encoder.encode_text(texts))


def test_whole_captions_need_no_phrases_and_others_do(encoder: Any) -> None:
    assert units_of([Query("a", "x y")], detector_of("sent"), None, encoder).texts == ("x y",)
    with pytest.raises(UsageError, match="'vp' needs phrases"):
        units_of([Query("a", "x y")], detector_of("vp"), None, encoder)


def test_a_query_without_text_is_named(encoder: Any) -> None:
    with pytest.raises(UsageError, match="query 'b' has no text"):
        units_of([Query("a", "x"), Query("b", "  ")], detector_of("sent"), None, encoder)


def test_an_id_that_comes_twice_is_named(encoder: Any) -> None:
    with pytest.raises(UsageError, match="query 'a' comes twice"):
        units_of([Query("a", "x"), Query("a", "y")], detector_of("sent"), None, encoder)


def test_a_vector_that_is_not_finite_is_refused_with_its_text() -> None:
    class Broken:
        name, dimension, fingerprint = "broken", 2, "broken:1"

        def encode_text(self, texts: Any) -> Any:
            return np.array([[np.nan, 0] if text == "bad" else [1, 0] for text in texts], np.float32)

    with pytest.raises(UsageError, match="'broken' gave no finite vector for 'bad'"):
        encoded(["good", "bad"], Broken())


def test_an_unknown_detector_is_answered_with_those_there_are() -> None:
    assert detector_of("NP_VP").name == "np-vp"
    with pytest.raises(UsageError, match="'noun': no such detector; accepted: sent, vp, np-vp"):
        detector_of("noun")
