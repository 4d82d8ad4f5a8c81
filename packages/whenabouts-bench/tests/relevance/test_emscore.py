from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.golden_folder import cases as golden_cases
from tests.golden_folder import golden_folder
from tests.relevance.made_pools import Construction, construction

from whenabouts.types import UsageError
from whenabouts_bench.released.mvmr_pools import ReleasedFrames
from whenabouts_bench.relevance.emscore import (
    EMScore,
    Frames,
    Words,
    inverse_document_frequencies,
    pooled_evenly,
    words_of,
)

NAMES = {"figr_P": "fine_p", "figr_R": "fine_r", "figr_F": "fine_f", "cogr": "coarse", "full_F": "full_f"}


@pytest.fixture(scope="module")
def cases() -> list[Construction]:
    files = golden_cases("mvmr_build", "*.npz")
    if not files:
        pytest.skip(f"{golden_folder()} has no mvmr_build")
    return [construction(file) for file in files]


def all_pairs(case: Construction) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    queries, videos = np.indices((len(case.words), len(case.frames)))
    return queries.ravel(), videos.ravel()


def test_frames_are_pooled_as_the_released_program_does(cases: list[Construction]) -> None:
    for case in cases:
        want = case.arrays["frames_pooled"]
        assert case.frames.vectors.reshape(want.shape) == pytest.approx(want, abs=1e-6)


def test_words_weigh_what_the_released_program_says(cases: list[Construction]) -> None:
    for case in cases:
        places = np.arange(case.arrays["token_idf"].shape[1])
        inside = places < case.arrays["token_lengths"][:, None]
        weights = inverse_document_frequencies(case.words)
        assert weights == pytest.approx(case.arrays["token_idf"][inside], abs=1e-6)


@pytest.mark.parametrize("idf", [True, False])
def test_all_pairs_score_as_released(cases: list[Construction], idf: bool) -> None:
    for case in cases:
        found = case.scorer.score(*all_pairs(case), idf=idf)
        for name, attribute in NAMES.items():
            want = case.arrays[f"all_pairs.{'idf' if idf else 'noidf'}.{name}"].ravel()
            assert getattr(found, attribute) == pytest.approx(want, abs=1e-5), name


def test_own_and_drawn_pairs_score_as_released(cases: list[Construction]) -> None:
    for case in cases:
        own = np.arange(len(case.words)), case.arrays["sentence_video"]
        drawn = case.arrays["sampled_negative.pairs_sentence_video"].T
        for group, pairs in (("golden", own), ("sampled_negative", (drawn[0], drawn[1]))):
            found = case.scorer.score(*pairs)
            for name, attribute in NAMES.items():
                assert getattr(found, attribute) == pytest.approx(case.arrays[f"{group}.{name}"], abs=1e-5)


def made(sentences: int = 7, videos: int = 5, width: int = 8, seed: int = 0) -> tuple[Words, Frames]:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(3, 9, sentences)
    vectors = draw.normal(size=(int(lengths.sum()), width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    starts = np.cumsum([0, *lengths.tolist()])
    ids = draw.integers(2, 12, len(vectors))
    ids[starts[:-1]], ids[starts[1:] - 1] = 0, 1
    words = Words(starts, ids, vectors, vectors[starts[1:] - 1], "made", np.ones(sentences, np.int64))
    rows = [draw.normal(size=(int(n), width)).astype(np.float32) for n in draw.integers(1, 20, videos)]
    return words, Frames.of(rows, 6)


def test_a_score_does_not_depend_on_what_else_is_asked_for() -> None:
    scorer = EMScore.of(*made())
    queries, videos = (index.ravel() for index in np.indices((7, 5)))
    together = scorer.score(queries, videos)
    alone = [scorer.score(queries[i : i + 1], videos[i : i + 1]).full_f[0] for i in range(35)]
    assert together.full_f == pytest.approx(np.array(alone), abs=1e-6)
    order = np.random.default_rng(1).permutation(35)
    assert scorer.score(queries[order], videos[order]).full_f == pytest.approx(
        together.full_f[order], abs=1e-6
    )


def test_a_score_is_what_the_definition_says_word_by_word() -> None:
    words, frames = made()
    weights = inverse_document_frequencies(words)
    found = EMScore.of(words, frames).score(np.array([3]), np.array([2]))
    own = range(int(words.starts[3]), int(words.starts[4]))
    seen = frames.vectors[frames.starts[2] : frames.starts[3]]
    best = [max(float(words.vectors[i] @ frame) for frame in seen) for i in own]
    precision = sum(weights[i] * b for i, b in zip(own, best, strict=True)) / sum(weights[i] for i in own)
    recall = np.mean([max(float(words.vectors[i] @ frame) for i in own) for frame in seen])
    mean = seen.mean(axis=0)
    coarse = float(words.vectors[own[-1]] @ mean / np.linalg.norm(mean))
    assert found.fine_p[0] == pytest.approx(precision, abs=1e-6)
    assert found.fine_r[0] == pytest.approx(recall, abs=1e-6)
    fine = 2 * precision * recall / (precision + recall)
    assert found.full_f[0] == pytest.approx((fine + coarse) / 2, abs=1e-6)


def test_a_sentence_that_is_said_often_makes_its_words_weigh_less() -> None:
    words, _ = made()
    often = Words(
        words.starts, words.ids, words.vectors, words.whole, "made", np.array([9, 1, 1, 1, 1, 1, 1])
    )
    repeated = np.repeat(np.arange(7), often.times)
    rows = np.concatenate([np.arange(words.starts[i], words.starts[i + 1]) for i in repeated])
    starts = np.cumsum([0, *np.diff(words.starts)[repeated].tolist()])
    spelled = Words(
        starts, words.ids[rows], words.vectors[rows], words.whole[repeated], "", np.ones(15, np.int64)
    )
    own = np.arange(words.starts[0], words.starts[1])
    assert inverse_document_frequencies(often)[own] == pytest.approx(
        inverse_document_frequencies(spelled)[own]
    )
    assert inverse_document_frequencies(often)[own].sum() < inverse_document_frequencies(words)[own].sum()


def test_a_sentence_of_start_and_end_alone_is_scored_without_weights() -> None:
    words, frames = made()
    bare = Words(
        np.array([0, 2, 8]), np.array([0, 1, 0, 4, 5, 6, 7, 1]), words.vectors[:8], words.whole[:2], "made",
        np.ones(2, np.int64),
    )  # fmt: skip
    scorer = EMScore.of(bare, frames)
    weighed, plain = (scorer.score(np.array([0]), np.array([0]), idf=idf).full_f for idf in (True, False))
    assert np.isfinite(weighed).all() and weighed == pytest.approx(plain)


def test_long_videos_are_pooled_to_unit_length_and_short_ones_stay_as_they_are() -> None:
    draw = np.random.default_rng(3)
    short, long = draw.normal(size=(3, 5)), draw.normal(size=(40, 5))
    frames = Frames.of([short, long], 8)
    assert np.diff(frames.starts).tolist() == [3, 8]
    assert np.linalg.norm(frames.vectors, axis=1) == pytest.approx(np.ones(11))
    released = ReleasedFrames.of([short, long], 8)
    assert np.diff(released.starts).tolist() == [8, 8]
    assert not np.allclose(np.linalg.norm(released.vectors, axis=1), 1)


@pytest.mark.parametrize(("rows", "count"), [(1, 4), (3, 8), (8, 8), (17, 6), (100, 32)])
def test_even_pooling_is_adaptive_average_pooling(rows: int, count: int) -> None:
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
    want = torch.nn.functional.adaptive_avg_pool1d(torch.from_numpy(values.T.copy())[None], count)[
        0
    ].T.numpy()
    assert pooled_evenly(values, count) == pytest.approx(want, abs=1e-6)


def test_frames_of_another_width_are_refused_with_both_widths() -> None:
    words, _ = made()
    with pytest.raises(UsageError, match=r"frames are 5 wide and words 8 \(made\).*give the model"):
        EMScore.of(words, Frames.of([np.ones((3, 5))], 4))


def test_frames_of_another_model_of_the_same_width_are_refused_by_fingerprint() -> None:
    words, _ = made()
    with pytest.raises(UsageError, match=r"made by 'other CLIP' and words by 'made'"):
        EMScore.of(words, Frames.of([np.ones((3, 8))], 4, "other CLIP"))
    EMScore.of(words, Frames.of([np.ones((3, 8))], 4, "made"))
    EMScore.of(words, Frames.of([np.ones((3, 8))], 4))  # frames without fingerprint


def test_words_are_kept_at_unit_length_and_those_that_are_not_finite_refused() -> None:
    rows = {"a b": np.array([[3.0, 4.0], [0.0, 2.0]], np.float32), "c": np.array([[1.0, 0.0]], np.float32)}

    def encode(texts: Sequence[str]) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        return [(np.arange(len(rows[text])), rows[text]) for text in texts]

    words = words_of(["a b", "c"], encode, "toy")
    assert words.starts.tolist() == [0, 2, 3] and words.width == 2
    assert words.vectors.astype(float) == pytest.approx(np.array([[0.6, 0.8], [0, 1], [1, 0]]), abs=1e-3)
    assert words.whole == pytest.approx(np.array([[0, 1], [1, 0]]))
    rows["c"] = np.array([[np.nan, 0.0]], np.float32)
    with pytest.raises(UsageError, match=r"no finite vectors for 'c'"):
        words_of(["a b", "c"], encode, "toy")
