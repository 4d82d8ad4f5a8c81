"""The picture: every kind of file, every part that may be missing, nothing half-written, nothing cut off."""

from __future__ import annotations

import builtins
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from matplotlib.backends.backend_agg import FigureCanvasAgg

from whenabouts.drawing import check_picture
from whenabouts.intake.files import FormatError
from whenabouts.types import Moment, UsageError
from whenabouts_systems.explain import Borders, Explained, Explanation, Ranked, TokenWeights
from whenabouts_systems.explain import picture as drawing
from whenabouts_systems.explain.picture import draw

TRUTH = Moment("v", 2.0, 5.0)


def explanation(systems: int = 1, words: int = 6, **changes: Any) -> Explanation:
    low = np.arange(0.0, 10.0, 2.0)
    chance: NDArray[np.float64] = np.array([0.1, 0.5, 0.2, 0.1, 0.1])
    share = tuple([1 / words] * words)
    told = Explained(
        "run",
        "xml",
        TokenWeights(tuple(f"word{at}" for at in range(words)), {"video": share, "sub": share}),
        Borders(low, np.arange(2.0, 12.0, 2.0), chance, chance[::-1].copy(), False, Moment("v", 2.0, 8.0)),
        (Ranked(1, Moment("v", 2.0, 6.0), 3.0, 10.0, 0.75), Ranked(2, Moment("w", 0.0, 2.0), 2.0, None, 0.0)),
    )
    return Explanation("what is asked", "7", "v", 10.0, (TRUTH,), (replace(told, **changes),) * systems)


def texts(told: Explanation) -> list[str]:
    """Every text of the picture."""
    figure = drawing._drawn(told)
    return [one.get_text() for part in (figure, *figure.axes) for one in part.texts]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("b.PNG", b"\x89PNG")],
)
def test_a_picture_of_each_kind_is_written(tmp_path: Path, name: str, begins: bytes) -> None:
    draw(explanation(2), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.svg", "a.pdf"])
def test_the_same_answer_makes_the_same_bytes(tmp_path: Path, name: str) -> None:
    draw(explanation(), tmp_path / name)
    first = (tmp_path / name).read_bytes()
    draw(explanation(), tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_the_picture_says_query_words_moments_and_verdicts() -> None:
    said = texts(explanation())
    for wanted in (
        "“what is asked”",
        "word3",
        "17 %",
        "video",
        "sub",
        "0:02.0 – 0:06.0",
        "3.00",
        "0.75",
        "✓",
        "✗",
    ):
        assert wanted in said, wanted
    assert any("true moment 0:02.0 – 0:05.0" in one for one in said)


def test_the_legend_names_truth_answer_start_and_end() -> None:
    figure = drawing._drawn(explanation())
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    assert [one.get_text() for one in legend.get_texts()] == [
        "true moment",
        "answered (IoU 0.50)",
        "start",
        "end",
    ]


def test_probabilities_of_two_systems_have_one_scale() -> None:
    told = explanation()
    flat = np.full(5, 0.2)
    other = explanation(
        borders=Borders(np.arange(0.0, 10.0, 2.0), np.arange(2.0, 12.0, 2.0), flat, flat, False, None)
    )
    figure = drawing._drawn(replace(told, systems=(*told.systems, *other.systems)))
    first, second = [axes.get_ylim() for axes in figure.axes if axes.get_legend()]
    assert first == second
    assert first[1] > 0.5


@pytest.mark.parametrize(("systems", "words"), [(1, 1), (2, 12), (2, 60)])
def test_no_text_leaves_the_picture_and_no_word_lies_on_another(systems: int, words: int) -> None:
    told = explanation(systems, words)
    told = replace(told, query="a very long question " * 12, video_id="v")
    figure = drawing._drawn(told)
    figure.set_dpi(100)
    FigureCanvasAgg(figure)  # one renderer measures all texts
    wide, high = figure.canvas.get_width_height()
    boxes = []
    for one in [text for part in (figure, *figure.axes) for text in part.texts if text.get_text()]:
        box = one.get_window_extent()
        assert box.x0 >= 0, one
        assert box.x1 <= wide, one
        assert box.y0 >= 0, one
        assert box.y1 <= high, one
        if one.get_text().startswith("word"):
            boxes.append(box)
    assert len(boxes) == 2 * words * systems
    assert not any(a.overlaps(b) for at, a in enumerate(boxes) for b in boxes[:at])


def test_long_names_of_videos_are_cut_in_the_middle_and_leave_room() -> None:
    name = "castle_s01e01_seg02_clip_01_" * 4
    moments = (Ranked(1, Moment(name, 3600.0, 3725.5), 1234.5, 7200.0, 0.0),)
    figure = drawing._drawn(explanation(2, moments=moments))
    FigureCanvasAgg(figure)  # one renderer measures all texts
    row = [
        text
        for text in figure.axes[-1].texts
        if text.get_text() and abs(text.get_position()[1] - (72 * 0.27 + 9)) < 1
    ]
    shown = [one.get_text() for one in row]
    assert any(one.startswith("cas") and "…" in one for one in shown)
    assert "1:00:00.0 – 1:02:05.5" in shown
    boxes = sorted((one.get_window_extent() for one in row), key=lambda box: box.x0)
    assert all(a.x1 <= b.x0 for a, b in pairwise(boxes))


@pytest.mark.parametrize(
    "changes",
    [
        {"token_weights": None},
        {"borders": None},
        {"moments": ()},
        {"token_weights": None, "borders": None, "moments": ()},
    ],
)
def test_what_a_system_cannot_tell_leaves_no_gap_and_no_error(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    whole, less = (drawing._drawn(explanation(**one)).get_figheight() for one in ({}, changes))
    assert less < whole
    draw(explanation(**changes), tmp_path / "a.png")


def test_without_truth_there_are_no_verdicts() -> None:
    told = explanation(moments=(Ranked(1, Moment("v", 2.0, 6.0), 3.0, 10.0),))
    said = texts(replace(told, truth=()))
    assert not {"✓", "✗", "IoU"} & set(said)


def test_letters_that_the_font_lacks_are_no_error(tmp_path: Path) -> None:
    told = explanation(token_weights=TokenWeights(("開ける", "🦊", "$x_1$"), {"video": (0.2, 0.3, 0.5)}))
    draw(replace(told, query="人がドアを開ける 🦊 $x^2$"), tmp_path / "a.png")


def test_control_characters_of_a_query_leave_a_valid_svg(tmp_path: Path) -> None:
    words = TokenWeights(("re\x00d", "do\ufffeor"), {"video": (0.5, 0.5)})
    told = replace(explanation(token_weights=words), query="re\x00d\x1b do\ufffeor " * 12)
    draw(told, tmp_path / "a.svg")
    lines = [text.strip() for text in ElementTree.parse(tmp_path / "a.svg").getroot().itertext()]
    assert {"red", "door"} <= set(lines) and any(line.startswith("“red door red") for line in lines)


def test_one_clip_and_no_duration_can_be_drawn(tmp_path: Path) -> None:
    one = np.array([1.0])
    told = explanation(borders=Borders(np.zeros(1), np.zeros(1), one, one, False, None))
    draw(replace(told, duration=None, truth=()), tmp_path / "a.png")


def test_another_kind_of_file_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        check_picture(tmp_path / "a.jpg")


def test_without_matplotlib_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError("No module named 'matplotlib'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="whenabouts\\[figures\\]"):
        check_picture(tmp_path / "a.png")


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.png"
    target.write_bytes(b"before")
    from matplotlib.figure import Figure

    def fails(self: Any, stream: Any, **_: Any) -> None:
        stream.write(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(Figure, "savefig", fails)
    with pytest.raises(FormatError, match="disk is full"):
        draw(explanation(), target)
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
