from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.golden_folder import cases, golden_folder
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from whenabouts.types import UsageError
from whenabouts_systems.models import decoding
from whenabouts_systems.models.decoding import (
    Decoding,
    Ends,
    best_over_videos,
    best_spans,
    clips_inside,
    ranked,
    seconds_of,
    span_mask,
)
from whenabouts_systems.models.protocol import SpanScores

Span = tuple[float, int, int, int]


def coarse(seed: int, *shape: int) -> Tensor:
    """Scores with many ties."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 3, shape) / 2).float()


def by_hand(scores: SpanScores, video: Tensor, how: Decoding, k: int, row: int) -> list[Span]:
    """All spans of a row, sorted by score, place, first, last, in plain Python: the oracle."""
    allowed = span_mask(scores.start.shape[-1], how)
    found = []
    for place, first, last in itertools.product(range(video.shape[1]), *[range(len(allowed))] * 2):
        real = scores.mask[row, place, first] and scores.mask[row, place, last]
        if allowed[first, last] and real:
            score = scores.start[row, place, first] + scores.end[row, place, last]
            if scores.spans is not None:
                score = scores.spans[row, place, first, last] + score
            found.append((-float(score + video[row, place]), place, first, last))
    return [(-score, *rest) for score, *rest in sorted(found)[:k]]  # type: ignore[misc]


def answered(found: decoding.BestSpans, row: int) -> list[Span]:
    columns = (found.score[row], found.place[row], found.first[row], found.last[row])
    return [span for span in zip(*(c.tolist() for c in columns), strict=True) if span[0] > -np.inf]


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 10_000),
    st.tuples(*[st.integers(1, 3)] * 2, st.integers(1, 8)),
    st.sampled_from(get_args(Ends)),
    st.integers(1, 3),
    st.none() | st.integers(0, 4),
    st.integers(1, 40),
    st.booleans(),
)
def test_the_best_spans_are_those_of_trying_all_and_ties_have_one_order(
    seed: int, shape: tuple[int, int, int], ends: Ends, least: int, more: int | None, k: int, maps: bool
) -> None:
    how = Decoding(least, None if more is None else least + more, ends)
    start, end = coarse(seed, *shape), coarse(seed + 1, *shape)
    spans = coarse(seed + 2, *shape, shape[-1]) if maps else None
    mask = coarse(seed + 3, *shape) > 0
    video = coarse(seed + 4, *shape[:2])
    scores = SpanScores(start, end, mask, spans)
    found = best_over_videos(scores, video, how, k)
    assert found.score.shape == (shape[0], k)
    for row in range(shape[0]):
        assert answered(found, row) == by_hand(scores, video, how, k, row)


@pytest.mark.parametrize("maps", [False, True])
def test_the_blocks_in_which_pairs_are_worked_on_do_not_matter(
    monkeypatch: pytest.MonkeyPatch, maps: bool
) -> None:
    scores = SpanScores(
        coarse(1, 9, 12), coarse(2, 9, 12), coarse(3, 9, 12) > 0, coarse(4, 9, 12, 12) if maps else None
    )
    whole = best_spans(scores, Decoding(1, 5), 20)
    monkeypatch.setattr(decoding, "_BLOCK", 1)
    single = best_spans(scores, Decoding(1, 5), 20)
    for name in ("first", "last", "score"):
        assert torch.equal(getattr(whole, name), getattr(single, name))


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple) else (made,):
            if isinstance(one, Tensor):
                self.numbers = max(self.numbers, one.untyped_storage().nbytes() // one.element_size())
        return made


@pytest.mark.parametrize("most", [None, 16])
def test_long_videos_never_make_all_first_times_last_clips(most: int | None) -> None:
    pairs, clips = 24, 3000
    scores = SpanScores(
        torch.randn(pairs, clips), torch.randn(pairs, clips), torch.ones(pairs, clips, dtype=torch.bool)
    )
    with Largest() as largest:
        best_spans(scores, Decoding(1, most), 10)
    assert largest.numbers < 2 * decoding._BLOCK < pairs * clips * clips


def test_masked_clips_and_scores_that_are_no_numbers_are_never_answered() -> None:
    start = torch.tensor([[9.0, 1.0, torch.nan, 2.0], [torch.nan] * 4])
    mask = torch.tensor([[False, True, True, True], [True] * 4])
    found = best_spans(SpanScores(start, torch.zeros(2, 4), mask), Decoding(max_clips=2), 6)
    assert [span[2:] for span in answered(found, 0)] == [(3, 3), (1, 1), (1, 2)]
    assert answered(found, 1) == []
    assert found.first[1].tolist() == found.last[1].tolist() == [0] * 6


def test_a_video_of_one_clip_has_its_moment() -> None:
    one = SpanScores(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool))
    assert answered(best_spans(one, Decoding(), 3), 0) == [(0.0, 0, 0, 0)]
    assert answered(best_spans(one, Decoding(2), 3), 0) == []
    assert answered(best_spans(one, Decoding(1, None, "exclusive"), 3), 0) == []


def test_no_pairs_give_no_spans() -> None:
    none = SpanScores(torch.zeros(0, 4), torch.zeros(0, 4), torch.zeros(0, 4, dtype=torch.bool))
    assert best_spans(none, Decoding(), 3).score.shape == (0, 3)


@pytest.mark.parametrize("scores", [torch.zeros(0, 4), torch.zeros(1, 2)], ids=["no pairs", "too short"])
def test_no_spans_are_refused_even_where_there_is_none_to_find(scores: Tensor) -> None:
    with pytest.raises(UsageError, match="k is 0; ask for one span or more"):
        best_spans(SpanScores(scores, scores, scores == 0), Decoding(3), 0)


def test_a_video_that_was_not_found_has_no_span_whatever_its_clips_score() -> None:
    scores = SpanScores(torch.ones(1, 2, 2), torch.ones(1, 2, 2), torch.ones(1, 2, 2, dtype=torch.bool))
    found = best_over_videos(scores, torch.tensor([[-torch.inf, 0.0]]), Decoding(), 9)
    assert {span[1] for span in answered(found, 0)} == {1}


@pytest.mark.parametrize(
    ("how", "spans"),
    [
        (Decoding(1, 2), {(0, 0): (0.0, 1.5), (0, 1): (0.0, 3.0), (1, 1): (1.5, 3.0), (1, 2): (1.5, 4.0)}),
        (Decoding(1, 2, "exclusive"), {(0, 1): (0.0, 1.5), (0, 2): (0.0, 3.0), (1, 2): (1.5, 3.0)}),
        (Decoding(1, 2, "as-released"), {(0, 1): (0.0, 3.0), (1, 2): (1.5, 4.5)}),
    ],
    ids=lambda value: value.ends if isinstance(value, Decoding) else "",
)
def test_each_convention_allows_its_spans_and_gives_its_seconds(
    how: Decoding, spans: dict[tuple[int, int], tuple[float, float]]
) -> None:
    allowed = span_mask(3, how)
    assert {tuple(at) for at in allowed.nonzero().tolist()} >= set(spans)
    for (first, last), seconds in spans.items():
        start, end = seconds_of(first, last, 1.5, 4.0, how)
        assert (float(start), float(end)) == seconds


def test_the_released_programs_predict_3_to_16_and_2_to_15_clips_for_the_settings_2_and_16() -> None:
    xml, reloclnet = Decoding(2, 16, "as-released"), Decoding(2, 15, "exclusive")
    assert torch.equal(span_mask(30, xml), span_mask(30, reloclnet))
    first, last = (one.numpy() for one in span_mask(30, xml).nonzero(as_tuple=True))
    for how, shortest, longest in ((xml, 4.5, 24.0), (reloclnet, 3.0, 22.5)):
        start, end = seconds_of(first, last, 1.5, None, how)
        assert ((end - start).min(), (end - start).max()) == (shortest, longest)


def test_seconds_are_cut_off_at_the_end_of_each_video_and_clips_have_each_video_s_length() -> None:
    start, end = seconds_of([0, 3], [4, 4], [1.5, 4.0], [7.0, 18.5], Decoding())
    assert (start.tolist(), end.tolist()) == ([0.0, 12.0], [7.0, 18.5])
    assert seconds_of(3, 4, 1.5, np.inf, Decoding())[1] == seconds_of(3, 4, 1.5, None, Decoding())[1] == 7.5


def test_clips_that_begin_at_the_end_of_the_video_are_not_used() -> None:
    durations = [4.5, 4.6, 0.1, np.inf]
    assert clips_inside(1.5, durations, Decoding())[:3].tolist() == [3, 4, 1]
    assert clips_inside(1.5, durations, Decoding(ends="exclusive"))[:3].tolist() == [4, 5, 2]
    assert clips_inside(1.5, durations, Decoding())[3] > 1 << 40
    assert clips_inside(1.5, [4.5], Decoding(ends="as-released"))[0] > 1 << 40
    for how in (Decoding(), Decoding(ends="exclusive")):
        count = int(clips_inside(1.5, 4.5, how))
        first, last = (one.numpy() for one in span_mask(count, how).nonzero(as_tuple=True))
        start, end = seconds_of(first, last, 1.5, 4.5, how)
        assert (start < end).all()
        assert len({*zip(start.tolist(), end.tolist(), strict=True)}) == len(start)


def test_settings_become_json_and_come_back() -> None:
    how = Decoding(2, 16, "exclusive", nms=0.5, spans_before_nms=300)
    assert Decoding.from_json(how.to_json()) == how


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"min_clips": 0}, "min_clips is 0"),
        ({"max_clips": 0}, "max_clips is 0"),
        ({"min_clips": 3, "max_clips": 2}, "no span has 3 to 2 clips"),
        ({"ends": "open"}, "ends is 'open'"),
        ({"nms": 1.5}, "nms is 1.5"),
        ({"top_videos": True}, "top_videos is True"),
        ({"spans": 3}, "no setting 'spans'; it has min_clips"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        Decoding.from_json(wrong)


def golden_files(pattern: str) -> list[Path]:
    """All files of that name among the golden inferences; skips where there are no golden inferences."""
    found = cases("inference", pattern)
    if not found:
        pytest.skip(f"{golden_folder()} has no inference/{pattern}")
    return found


def test_the_mask_of_lengths_is_that_of_the_released_programs() -> None:
    for path in golden_files("span_mask*.npz"):
        with np.load(path) as masks:
            assert masks.files
            for name in masks.files:
                clips, least, most = map(int, re.findall(r"\d+", name))
                ours = span_mask(clips, Decoding(least, most, "as-released"))
                np.testing.assert_array_equal(ours.numpy(), masks[name], err_msg=f"{path} {name}")


def test_the_best_of_a_volume_are_those_of_the_released_programs() -> None:
    for path in golden_files("topk3d*.npz"):
        with np.load(path) as case:
            volume, values, index = (case[name] for name in ("score_map", "top_values", "top_index_vmn"))
        score, at = ranked(torch.from_numpy(volume).flatten()[None], len(values))
        np.testing.assert_array_equal(score[0].numpy(), values)
        np.testing.assert_array_equal(np.stack(np.unravel_index(at[0].numpy(), volume.shape), 1), index)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([-np.inf, 0.0, 1.0, 2.0, np.nan]), min_size=1, max_size=20), st.integers(1, 25)
)
def test_equal_values_are_ranked_by_position(values: list[float], k: int) -> None:
    score, at = ranked(torch.tensor([values]), k)
    kept = [-np.inf if np.isnan(value) else value for value in values]
    order = sorted(range(len(values)), key=lambda place: (-kept[place], place))[:k]
    real = [place for place in order if kept[place] > -np.inf]
    assert at[0].tolist()[: len(real)] == real
    assert score[0].tolist() == [kept[place] for place in order]
