"""The files of the ranked study: a text model of plain counts, grades of like shares, queries asked once."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.ranked_setting import PlainVectors, bands_like, drawn, once

from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.relevance.ranked import BANDS, rank_moments

PLACES, THINGS = ("kitchen", "bedroom", "garden"), ("cup", "mug", "lamp", "sofa")


@pytest.fixture(scope="module")
def plain() -> PlainVectors:
    """Of sentences in which cups and mugs are met beside the same words, lamps and sofas beside others."""
    drinks = [
        f"somebody drinks hot tea from a {cup} in the {place}" for cup in THINGS[:2] for place in PLACES
    ]
    rests = [f"people rest near one old {thing} by the {place}" for thing in THINGS[2:] for place in PLACES]
    return PlainVectors(5 * (drinks + rests), width=6)


def test_words_met_beside_the_same_words_are_alike(plain: PlainVectors) -> None:
    cup, mug, lamp = plain.encode_text(["a cup of tea", "a MUG of tea!", "an old lamp"])
    assert cup @ mug > 0.9 > cup @ lamp
    assert np.linalg.norm(cup) == pytest.approx(1)
    assert not plain.encode_text(["unheard"]).any()


def test_grades_begin_where_as_many_pairs_lie_above_as_by_the_reference() -> None:
    random = np.random.default_rng(0)
    reference = random.standard_normal((200, 3)).astype(np.float32)
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)
    assert bands_like(reference, reference) == pytest.approx(BANDS, abs=0.01)
    other = random.standard_normal((200, 5)).astype(np.float32)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    bands, pairs = bands_like(other, reference), np.triu_indices(200, 1)
    for band, of_reference in zip(bands, BANDS, strict=True):
        share = ((reference @ reference.T)[pairs] >= of_reference).mean()
        assert ((other @ other.T)[pairs] >= band).mean() == pytest.approx(share, abs=0.001)


def captions(*texts: str) -> Annotations:
    builder = AnnotationBuilder("made")
    for number, text in enumerate(texts):
        builder.add_video(f"v{number}", 30.0)
        builder.add_query(f"q{number}", text)
        builder.judge(f"q{number}", f"v{number}", 0.0, 9.0, 1)
    return builder.annotations()


def test_captions_of_the_same_words_are_drawn_and_asked_once(plain: PlainVectors) -> None:
    pool = captions("A cup.", "a mug", "a  CUP", "an old lamp", "one sofa")
    validation, test = drawn(pool, 1, 2)
    assert len({*validation, *test}) == 3 and drawn(pool, 1, 2) == [validation, test]
    ranked = once(rank_moments(pool, plain, 2))
    assert ranked.query.tolist() == [0, 0, 1, 1, 3, 3, 4, 4]
    with pytest.raises(SystemExit, match="has 4 captions"):
        drawn(pool, 2, 2)
