"""Asking a system: words of tokens, probabilities of borders, also of a 2-D map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.encoders import EncoderUnavailable, open_text_encoder
from whenabouts_systems.explain.readout import borders, pieces_of, token_weights
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.protocol import Named, QueryEncoding, SpanScores, VideoEncoding
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus

ASKED = QueryEncoding({"video": torch.ones(1, 2)})


class Known:
    """A system whose answers are given."""

    video_weight = 1.0

    def __init__(self, weights: Named, scores: SpanScores | None = None) -> None:
        self._weights, self._scores = weights, scores

    def word_weights(self, queries: QueryEncoding) -> Named:
        return self._weights

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        assert self._scores is not None
        return self._scores


@dataclass(frozen=True)
class Opened:
    model: object
    system: str = "known"
    decoding: Decoding = field(default_factory=Decoding)


class Bare:
    """A system that tells nothing."""


def weights(*rows: Sequence[float]) -> dict[str, Tensor]:
    return {f"s{number}": torch.tensor([row]) for number, row in enumerate(rows)}


def corpus(clips: int, duration: float, seconds: float = 2.0) -> MemoryCorpus:
    """One video."""
    kept = VideoEncoding(torch.ones(1, clips, dtype=torch.bool), parts={"none": torch.zeros(1, clips, 1)})
    zero = np.zeros(1, np.int64)
    return MemoryCorpus(("v",), np.array([seconds]), np.array([duration]), [kept], zero, zero)


def logs(values: Sequence[float]) -> Tensor:
    return torch.tensor([values]).log()


# Words -----------------------------------------------------------------------------------------------


def test_the_pieces_of_a_word_become_one_word_and_their_weights_are_added() -> None:
    told = token_weights(
        Opened(Known(weights([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]))),
        ASKED,
        "unwraps it",
        ["[CLS]", "un", "##wraps", "it"],
    )
    assert told is not None
    assert told.words == ("[CLS]", "unwraps", "it")
    assert told.weights["s0"] == pytest.approx((0.1, 0.5, 0.4))
    assert told.weights["s1"] == pytest.approx((0.4, 0.5, 0.1))
    assert told.named


def test_a_piece_that_is_only_a_mark_keeps_its_name() -> None:
    told = token_weights(Opened(Known(weights([0.5, 0.5]))), ASKED, "# #", ["##", "##"])
    assert told is not None
    assert told.words == ("####",)


@pytest.mark.parametrize(
    "pieces",
    [
        ["<s>", "\u2581a", "\u2581door", "s", "</s>"],
        ["<s>", "\u0120a", "\u0120door", "s", "</s>"],
        ["<|startoftext|>", "a</w>", "door", "s</w>", "<|endoftext|>"],
        ["[CLS]", "a", "door", "##s", "[SEP]"],
    ],
)
def test_pieces_of_each_kind_of_tokenizer_become_words(pieces: list[str]) -> None:
    told = token_weights(Opened(Known(weights([0.1, 0.2, 0.3, 0.25, 0.15]))), ASKED, "x", pieces)
    assert told is not None
    assert told.words == (pieces[0], "a", "doors", pieces[-1])
    assert told.weights["s0"] == pytest.approx((0.1, 0.2, 0.55, 0.15))


def test_without_pieces_the_words_of_the_text_are_taken_where_there_are_as_many_as_tokens() -> None:
    told = token_weights(Opened(Known(weights([0.5, 0.3, 0.2]))), ASKED, "a  red door")
    assert told is not None
    assert told.words == ("a", "red", "door")
    assert told.named


@pytest.mark.parametrize("pieces", [None, ["a"]])
def test_tokens_whose_words_are_not_known_are_called_by_number(pieces: list[str] | None) -> None:
    told = token_weights(Opened(Known(weights([0.5, 0.3, 0.2]))), ASKED, "a door", pieces)
    assert told is not None
    assert told.words == ("token 1", "token 2", "token 3")
    assert not told.named


def test_of_a_query_that_was_cut_the_first_pieces_are_told() -> None:
    told = token_weights(Opened(Known(weights([0.5, 0.5]))), ASKED, "a red door", ["a", "red", "door"])
    assert told is not None
    assert told.words == ("a", "red")


def test_a_system_that_tells_no_weights_has_none() -> None:
    assert token_weights(Opened(Bare()), ASKED, "a door") is None


def test_pieces_come_from_the_encoder_by_name_or_as_an_object() -> None:
    try:
        encoder = open_text_encoder()
    except EncoderUnavailable as error:
        pytest.skip(str(error))
    expected = ["[CLS]", "a", "red", "door", "[SEP]"]
    assert pieces_of("A red door", "all-MiniLM-L6-v2") == expected
    assert pieces_of("A red door", encoder) == expected


@pytest.mark.parametrize("name", ["", "/no/such/encoder"])
def test_an_encoder_that_cannot_be_had_tells_no_pieces(name: str) -> None:
    assert pieces_of("a door", name) is None


def test_an_encoder_that_tells_no_pieces_is_not_asked_for_them() -> None:
    class Whole:
        name, fingerprint, dimension = "whole", "whole", 2

        def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.ones((len(texts), 2), np.float32)

    assert pieces_of("a door", Whole()) is None


# Borders ---------------------------------------------------------------------------------------------


def test_logarithms_of_probabilities_come_back_as_they_are() -> None:
    start, end = [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]
    scores = SpanScores(logs(start), logs(end), torch.ones(1, 3, dtype=torch.bool))
    told = borders(Opened(Known({}, scores)), ASKED, corpus(3, 5.0), "v")
    assert told is not None
    np.testing.assert_allclose(told.start, start, rtol=1e-6)
    np.testing.assert_allclose(told.end, end, rtol=1e-6)
    assert told.low.tolist() == [0.0, 2.0, 4.0]
    assert told.high.tolist() == [2.0, 4.0, 5.0]  # the last clip ends with the video
    assert told.answered is not None
    assert (told.answered.start, told.answered.end) == (2.0, 5.0)


def test_clips_in_the_padding_are_left_out() -> None:
    mask = torch.tensor([[True, True, False]])
    scores = SpanScores(torch.tensor([[0.0, 1.0, 99.0]]), torch.tensor([[1.0, 0.0, 99.0]]), mask)
    told = borders(Opened(Known({}, scores)), ASKED, corpus(3, math.inf), "v")
    assert told is not None
    assert len(told.start) == len(told.low) == 2
    np.testing.assert_allclose(told.start, np.exp([0, 1]) / np.exp([0, 1]).sum(), rtol=1e-6)


def test_a_border_of_a_map_has_what_all_its_spans_have_together() -> None:
    random = np.random.default_rng(0)
    clips, decoding = 5, Decoding(min_clips=2, max_clips=3)
    table, start, end = (
        random.normal(size=(clips, clips)),
        random.normal(size=clips),
        random.normal(size=clips),
    )
    spans = np.zeros((clips, clips))
    for first in range(clips):
        for last in range(clips):
            if 2 <= last - first + 1 <= 3:
                spans[first, last] = math.exp(start[first] + end[last] + table[first, last])
    scores = SpanScores(
        torch.tensor(start)[None],
        torch.tensor(end)[None],
        torch.ones(1, clips, dtype=torch.bool),
        torch.tensor(table)[None],
    )
    told = borders(Opened(Known({}, scores), decoding=decoding), ASKED, corpus(clips, 10.0), "v")
    assert told is not None
    np.testing.assert_allclose(told.start, spans.sum(1) / spans.sum(), atol=1e-12)
    np.testing.assert_allclose(told.end, spans.sum(0) / spans.sum(), atol=1e-12)
    best, ending = divmod(int(spans.argmax()), clips)
    assert told.answered is not None
    assert (told.answered.start, told.answered.end) == (2.0 * best, 2.0 * (ending + 1))


def test_exclusive_ends_are_marked_as_such() -> None:
    scores = SpanScores(logs([0.9, 0.1]), logs([0.1, 0.9]), torch.ones(1, 2, dtype=torch.bool))
    told = borders(Opened(Known({}, scores), decoding=Decoding(ends="exclusive")), ASKED, corpus(2, 4.0), "v")
    assert told is not None
    assert told.exclusive
    assert told.answered is not None
    assert told.answered.end == 2.0


def test_a_video_in_which_no_span_is_allowed_has_no_answer() -> None:
    scores = SpanScores(logs([0.5, 0.5]), logs([0.5, 0.5]), torch.ones(1, 2, dtype=torch.bool))
    told = borders(Opened(Known({}, scores), decoding=Decoding(min_clips=3)), ASKED, corpus(2, 4.0), "v")
    assert told is not None
    assert told.answered is None


def test_a_system_that_finds_no_moments_has_no_borders() -> None:
    assert borders(Opened(Bare()), ASKED, corpus(2, 4.0), "v") is None
