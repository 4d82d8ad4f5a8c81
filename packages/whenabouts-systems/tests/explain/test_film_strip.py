"""Frames and words beneath the curves: all that is drawn, where it belongs, and none over another."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from matplotlib.backends.backend_agg import FigureCanvasAgg

from whenabouts.shown import Line
from whenabouts.types import Moment
from whenabouts.video.thumbnails import encode_jpeg
from whenabouts_systems.explain import Borders, Explained, Explanation, Ranked
from whenabouts_systems.explain import picture as drawing
from whenabouts_systems.explain.explained import Film, Frame
from whenabouts_systems.explain.film_strip import lay_out
from whenabouts_systems.explain.picture import draw

TRUTH, ANSWERED = Moment("v", 10.0, 16.0), Moment("v", 30.0, 36.0)
SAID = "what is said in the video and goes on for a while"


def jpeg(wide: int = 64, high: int = 36) -> bytes:
    return encode_jpeg(np.full((high, wide, 3), 128, dtype=np.uint8))


def film(seconds: float, count: int = 8, every: float = 5.0, shape: tuple[int, int] = (64, 36)) -> Film:
    at = (np.arange(count) + 0.5) * seconds / max(count, 1)
    starts = np.arange(0.0, seconds, every).tolist() if every else []
    words = tuple(Line(start, start + 0.8 * every, f"{start:g}: {SAID}") for start in starts)
    return Film(tuple(Frame(one, jpeg(*shape)) for one in at.tolist()), words)


def explanation(seconds: float, shown: Film | None, systems: int = 1) -> Explanation:
    clip = max(2.0, seconds / 300)
    low = np.arange(0.0, seconds, clip)
    even = np.full(len(low), 1 / len(low))
    share = {"video": np.full(len(low), 0.4), "subtitle": np.full(len(low), 0.6)}
    borders = Borders(low, low + clip, even, even, False, ANSWERED, share)
    told = Explained("run", "xml", None, borders, ())
    return Explanation("what is asked", "", "v", seconds, (TRUTH,), (told,) * systems, shown)


def figure_of(told: Explanation) -> Any:
    figure = drawing._drawn(told)
    figure.set_dpi(100)
    FigureCanvasAgg(figure)  # one renderer measures all texts
    return figure


def strips(figure: Any) -> list[Any]:
    """The panels that hold frames or words."""
    return [
        axes for axes in figure.axes if axes.images or any("said" in one.get_text() for one in axes.texts)
    ]


def test_frames_and_words_are_in_the_picture_with_their_times() -> None:
    (strip,) = strips(figure_of(explanation(40.0, film(40.0))))
    assert len(strip.images) == 8
    said = [one.get_text() for one in strip.texts]
    assert [one for one in said if one.endswith(".5") and one.startswith("0:")] == [
        f"0:{at:04.1f}" for at in np.arange(2.5, 40.0, 5.0)
    ]
    assert sum(one.endswith(" what is") or ": what" in one for one in said) == 8


def test_words_and_frames_of_true_and_answered_moment_are_marked() -> None:
    strip = lay_out(film(40.0), (TRUTH,), ANSWERED, 40.0, 10.0)
    assert [block.mark for block in strip.blocks] == ["", "", "true", "", "", "", "answered", ""]
    assert [frame.mark for frame in strip.frames] == ["", "", "true", "", "", "", "answered", ""]


def test_a_word_that_only_reaches_into_a_moment_is_not_of_it() -> None:
    words = (Line(8.0, 10.2, "before"), Line(10.2, 15.0, "within"), Line(15.5, 30.0, "behind"))
    strip = lay_out(Film(words=words), (TRUTH,), None, 40.0, 10.0)
    assert {one.mark for one in strip.blocks if "within" in one.lines} == {"true"}
    assert not {one.mark for one in strip.blocks if "within" not in one.lines} - {""}


def test_words_around_a_whole_moment_are_of_it() -> None:
    strip = lay_out(Film(words=(Line(0.0, 40.0, "all along"),)), (TRUTH,), None, 40.0, 10.0)
    assert [one.mark for one in strip.blocks] == ["true"]


@pytest.mark.parametrize("systems", [1, 2])
@pytest.mark.parametrize(
    ("seconds", "every", "shape"),
    [(3.0, 0.5, (64, 36)), (40.0, 3.0, (36, 64)), (700.0, 3.0, (64, 36)), (20_000.0, 20.0, (640, 20))],
)
def test_nothing_lies_on_another_or_leaves_the_picture(
    systems: int, seconds: float, every: float, shape: tuple[int, int]
) -> None:
    figure = figure_of(explanation(seconds, film(seconds, 8 // systems, every, shape), systems))
    found = strips(figure)
    assert len(found) == systems
    wide, high = figure.canvas.get_width_height()
    for strip in found:
        labels = [one for one in strip.texts if one.get_text()]
        boxes = [one.get_window_extent() for one in (*labels, *strip.images)]
        assert not [(a, b) for at, a in enumerate(boxes) for b in boxes[:at] if a.overlaps(b)]
        assert all(one.x0 >= 0 and one.x1 <= wide and one.y0 >= 0 and one.y1 <= high for one in boxes)
        limits = strip.get_window_extent()
        assert all(limits.x0 - 0.5 <= one.x0 and one.x1 <= limits.x1 + 0.5 for one in boxes)
        assert all(limits.y0 <= one.y0 and one.y1 <= limits.y1 for one in boxes)


def test_frames_keep_their_shape_and_hang_near_their_instants() -> None:
    strip = lay_out(film(40.0, shape=(32, 64)), (), None, 40.0, 10.0)
    assert all(one.wide / one.high == pytest.approx(0.5) for one in strip.frames)
    assert all(one.left < one.at < one.left + one.wide for one in strip.frames)


@pytest.mark.parametrize("seconds", [[5.0, 5.5, 39.9], [0.0, 0.1, 0.2], [39.8, 39.9, 40.0]])
def test_frames_of_neighbouring_instants_make_room_for_each_other(seconds: list[float]) -> None:
    shown = Film(tuple(Frame(one, jpeg()) for one in seconds))
    strip = lay_out(shown, (), None, 40.0, 10.0)
    assert all(a.left + a.wide < b.left for a, b in pairwise(strip.frames))
    assert strip.frames[0].left >= 0
    assert strip.frames[-1].left + strip.frames[-1].wide <= 720


def test_an_hour_keeps_the_words_of_the_marked_moments_and_drops_others() -> None:
    truth, answered = Moment("v", 1801.0, 1807.0), Moment("v", 2401.0, 2404.0)
    strip = lay_out(film(3600.0, every=3.0), (truth,), answered, 3600.0, 10.8)
    assert 5 <= len(strip.blocks) <= 9
    marked = [(one.mark, one.start) for one in strip.blocks if one.mark]
    assert marked == [("true", 1800.0), ("answered", 2400.0)]
    assert all(b.left - a.left >= 76 for a, b in pairwise(strip.blocks))
    assert all(len(one.lines) <= 5 for one in strip.blocks)


def test_truth_goes_before_the_answer_where_there_is_room_for_one() -> None:
    truth, answered = Moment("v", 60.0, 66.0), Moment("v", 50.0, 56.0)
    strip = lay_out(film(3600.0, every=2.0), (truth,), answered, 3600.0, 10.8)
    assert [one.mark for one in strip.blocks if one.mark] == ["true"]


def test_a_block_holds_what_is_said_until_the_next_and_is_cut_with_a_sign() -> None:
    words = tuple(Line(float(at), at + 1.0, f"word{at}") for at in range(100))
    strip = lay_out(Film(words=words), (), None, 100.0, 2.5)
    first, second = strip.blocks
    assert " ".join(first.lines).startswith("word0 word1 word2")
    assert first.lines[-1].endswith("…")
    assert first.start < second.start
    assert f"word{second.start:g}" in second.lines[0]


def test_without_frames_words_stand_alone_and_without_words_frames_do() -> None:
    both, no_frames, no_words = (
        lay_out(one, (), None, 40.0, 10.0) for one in (film(40.0), film(40.0, 0), film(40.0, every=0.0))
    )
    assert 0 < no_frames.high < both.high
    assert 0 < no_words.high < both.high
    figure = figure_of(explanation(40.0, film(40.0, every=0.0)))
    assert [len(one.images) for one in strips(figure)] == [8]
    said = [one.get_text() for one in figure.texts]
    assert "seen" in said
    assert "said" not in said
    (strip,) = strips(figure_of(explanation(40.0, film(40.0, 0))))
    assert not strip.images


def test_with_neither_the_picture_is_as_high_as_without_a_film() -> None:
    told = explanation(40.0, None)
    empty = figure_of(replace(told, film=Film()))
    assert not strips(empty)
    assert empty.get_figheight() == figure_of(told).get_figheight()


def test_a_data_set_keeps_its_axis_of_seconds_and_a_corpus_has_a_clock() -> None:
    for shown, label, tick in (
        (None, "seconds", "40"),
        (film(100.0), "minutes:seconds", "0:40"),
    ):
        figure = figure_of(explanation(100.0, shown))
        (axes,) = [one for one in figure.axes if one.get_xlabel()]
        assert axes.get_xlabel() == label
        assert tick in [one.get_text() for one in axes.get_xticklabels()]


@pytest.mark.parametrize("systems", [1, 2])
@pytest.mark.parametrize("seconds", [0.5, 13.0, 3599.0, 3600.0, 400_000.0])
def test_ticks_of_the_clock_do_not_touch(seconds: float, systems: int) -> None:
    told = explanation(2.0, Film(words=(Line(0.0, 1.0, SAID),)), systems)
    figure = figure_of(replace(told, duration=seconds))
    for axes in [one for one in figure.axes if one.get_xlabel()]:
        shown = [
            one.get_window_extent()
            for one in axes.get_xticklabels()
            if one.get_text() and 0 <= one.get_position()[0] <= seconds
        ]
        assert shown
        assert all(a.x1 < b.x0 for a, b in pairwise(shown))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf"])
def test_the_same_film_makes_the_same_bytes(tmp_path: Path, name: str) -> None:
    told = explanation(40.0, film(40.0), 2)
    draw(told, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    draw(told, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


@pytest.mark.slow
def test_scripts_without_gaps_and_signs_that_mean_mathematics_are_drawn(tmp_path: Path) -> None:
    words = (Line(0.0, 20.0, "人がドアを開ける" * 30), Line(20.0, 40.0, "costs $5 or $x^$ " * 5))
    draw(explanation(40.0, Film(words=words)), tmp_path / "a.png")


@pytest.mark.parametrize(("systems", "count"), [(1, 1), (2, 5), (2, 10)])
def test_candidate_moments_are_pictures_side_by_side_within_the_figure(systems: int, count: int) -> None:
    told = explanation(60, None, systems)
    moments = tuple(
        Ranked(rank, Moment(f"v{rank}", 2.0 * rank, 2.0 * rank + 4), 1.0, 60.0, 0.9 / rank, frame)
        for rank, frame in ((rank, Frame(2.0 * rank + 2, jpeg())) for rank in range(1, count + 1))
    )
    moments += (Ranked(count + 1, Moment("sound", 0.0, 2.0), 0.1, 60.0, 0.0),)  # has no picture
    told = replace(told, systems=tuple(replace(system, moments=moments) for system in told.systems))
    figure = figure_of(told)
    panels = [axes for axes in figure.axes if axes.images]
    assert [len(axes.images) for axes in panels] == [count] * systems
    for axes in panels:
        places = [image.get_window_extent() for image in axes.images]
        assert all(before.x1 < after.x0 for before, after in pairwise(places))
        labels = [one.get_text() for one in axes.texts]
        assert labels == [f"{rank}   0:{2 * rank + 2:02}.0" for rank in range(1, count + 1)]
        boxes = [one.get_window_extent() for one in axes.texts]
        wide, high = figure.canvas.get_width_height()
        assert all(box.x0 >= 0 and box.x1 <= wide and box.y0 >= 0 and box.y1 <= high for box in boxes)
        # The first two moments have IoUs of 0.9 and 0.45 with the truth.
        colours = [patch.get_edgecolor() for patch in axes.patches]
        assert len(set(colours[:2])) == min(count, 2)
    assert (
        figure.get_figheight()
        > figure_of(replace(told, systems=explanation(60, None).systems)).get_figheight()
    )
