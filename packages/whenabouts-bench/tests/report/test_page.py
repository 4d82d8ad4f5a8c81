"""The page: whole HTML, nothing loaded, nothing injected, and the same numbers as everywhere."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="the page is drawn with jinja2")
pytest.importorskip("matplotlib", reason="the curves are drawn with matplotlib")

from tests.report.conftest import make_case

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.evaluation.protocols import PROTOCOLS
from whenabouts_bench.formats.runs import MemoryRun
from whenabouts_bench.report import page
from whenabouts_bench.report.charts import thinned
from whenabouts_bench.report.content import Report, gather

VCMR = PROTOCOLS["vcmr"]
NAN = math.nan
EVIL = "<script>alert('x')</script>\"'><img src=//evil.example/p.png onerror=alert(1)>{{ 7*7 }}&amp;"
VOID = {"meta", "link", "br", "img", "input", "hr", "base", "source", "wbr"}
LOADING = {
    "src",
    "srcset",
    "data",
    "poster",
    "action",
    "formaction",
    "background",
    "ping",
    "cite",
    "manifest",
}


class Reader(HTMLParser):
    """A strict parser: elements must nest; keeps ids, attributes and words."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def _loads_nothing(text: str, reader: Reader) -> None:
    """No element, attribute or style names anything outside the page."""
    assert not reader.tags & {"script", "iframe", "object", "embed", "img", "audio", "video", "base", "form"}
    for tag, name, value in reader.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in LOADING, (tag, name)
        if name in ("href", "xlink:href"):
            assert value.startswith("#") or (tag, value) == ("link", "data:,"), (tag, value)
        if name in ("style", "clip-path", "fill", "filter", "mask"):
            assert "//" not in value and re.fullmatch(r"(?:[^u]|u(?!rl\()|url\(#)*", value), (tag, value)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, flags=re.S))
    assert style and "//" not in style and "url(" not in style and "@import" not in style
    assert "http" not in text.replace("http-equiv", "")


def _read(report: Report) -> tuple[str, Reader]:
    text = page.render(report)
    reader = Reader(text)
    assert text.startswith("<!DOCTYPE html>")
    assert len(reader.ids) == len(set(reader.ids)), "an id comes twice"
    targets = {value[1:] for _, name, value in reader.attributes if name == "href" and value[:1] == "#"}
    targets |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(reader.ids), targets - set(reader.ids)
    _loads_nothing(text, reader)
    assert "nan" not in re.findall(r"\w+", reader.text.lower())
    return text, reader


def _two_runs(made: Any, **more: Any) -> Report:
    truth = {f"q{number}": [(f"v{number % 7}", 2.0, 8.0, 1.0)] for number in range(40)}
    good = {f"q{number}": [(f"v{number % 7}", 2.0, 8.0), ("x", 1.0, 2.0)] for number in range(30)}
    poor = {f"q{number}": [("x", 1.0, 2.0), (f"v{number % 7}", 3.0, 8.0)] for number in range(5, 40)}
    annotations, runs = made(truth, poor, good, **more)
    return gather(annotations, runs, VCMR)


@pytest.fixture(scope="module")
def two_runs() -> Report:
    return _two_runs(make_case)


@pytest.fixture()
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without charts, which take most of a page's time."""
    monkeypatch.setattr("whenabouts_bench.report.charts.draw", lambda chart: "<svg></svg>")


def test_two_runs_make_a_whole_page_that_loads_nothing(two_runs: Report) -> None:
    report = two_runs
    _, reader = _read(report)
    assert "default-src 'none'" in str(reader.attributes)
    for run in report.runs:
        assert run.summary.headline in reader.text and run.summary.verdict in reader.text
        assert all(line in reader.text for line in run.summary.details)
    assert report.verdict and report.verdict.headline in reader.text
    before, after = (run.name for run in report.runs)
    assert report.verdict.headline == f"By R@1,IoU=0.5, {after} is better than {before}."
    assert "Won by B (30)" in reader.text and "Lost by B (10)" in reader.text
    assert report.moved_sentence in reader.text
    assert all(note in reader.text for note in report.notes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_one_run_makes_a_whole_page_with_its_worst_queries(case: Callable[..., Any], seed: int) -> None:
    drawn = case(seed, 60, several=True, graded=seed == 1)
    report = gather(drawn.annotations, [drawn.run], None)
    _, reader = _read(report)
    assert report.runs[0].summary.headline in reader.text
    shown = [example for part in report.parts for example in part.examples]
    assert 0 < len(shown) <= 24
    assert all(example.text in reader.text for example in shown)
    assert bool(report.graded) == (seed == 1)


@pytest.mark.usefixtures("no_charts")
def test_the_numbers_are_those_of_evaluate(case: Callable[..., Any]) -> None:
    drawn = case(4, 80, several=True)
    report = gather(drawn.annotations, [drawn.run], VCMR)
    _, reader = _read(report)
    means = evaluate(drawn.annotations, drawn.run, protocol=VCMR).means()
    assert [row.name for row in report.metrics] == list(means)
    for row in report.metrics:
        (estimate,) = row.means
        if row.name.startswith("SVMR"):
            assert estimate is None and f"{row.name} –" in reader.text
            continue
        assert estimate and estimate.value == pytest.approx(means[row.name])
        assert estimate.low <= estimate.value <= estimate.high
        assert f"{row.name} {100 * means[row.name]:.2f} {100 * estimate.low:.2f} to" in reader.text
    missing = dict(report.fit)["judged queries the run does not answer"]
    silent = [query for query in drawn.truth if query not in drawn.answers]
    assert missing[0] == len(silent) > 0


@pytest.mark.usefixtures("no_charts")
def test_groups_and_changes_count_every_query_once(made: Callable[..., Any]) -> None:
    types = {f"q{number}": ("v", "t")[number % 2] for number in range(40)}
    report = _two_runs(made, types=types)
    assert np.sum(report.moved) == 40
    assert np.sum(report.moved, axis=1).tolist() == report.runs[0].class_counts
    assert np.sum(report.moved, axis=0).tolist() == report.runs[1].class_counts
    assert report.groupings[0].title == "Query type"
    for table in report.groupings:
        assert sum(row.size for row in table.rows) == 40
        for number, run in enumerate(report.runs):
            cells = [row.cells[number].counts for row in table.rows]
            assert np.sum(cells, axis=0).tolist() == run.class_counts


@pytest.mark.slow
def test_nothing_from_data_becomes_markup(made: Callable[..., Any]) -> None:
    truth = {EVIL: [(EVIL + "v", 2.0, 8.0, 1.0)], "q": [(EVIL + "v", 2.0, 8.0, 1.0)]}
    answers = {EVIL: [("x" + EVIL, 1.0, 2.0), (EVIL + "v", 2.5, 8.0)]}
    other = {"q": [("x" + EVIL, 1.0, 2.0)]}
    annotations, runs = made(
        truth,
        answers,
        other,
        texts={EVIL: EVIL, "q": EVIL},
        types={EVIL: EVIL, "q": "$x^2$"},
        names=(f"a{EVIL}.jsonl", f"b{EVIL}.jsonl"),
    )
    for report in (gather(annotations, runs, VCMR), gather(annotations, runs[:1], VCMR, [EVIL])):
        text, reader = _read(report)
        assert "<script" not in text and "onerror=alert(1)>" not in text and "<img" not in text
        assert text.count("{{ 7*7 }}") >= 3 and "49" not in reader.text
        assert EVIL in "".join(reader.words)


@pytest.mark.usefixtures("no_charts")
def test_control_characters_and_broken_unicode_are_replaced(made: Callable[..., Any]) -> None:
    text = "bell\x07 null\x00 half\ud83d escape\x1b[31m"
    annotations, runs = made({"q": [("v", 2.0, 8.0, 1.0)]}, {"q": [("w", 1.0, 2.0)]}, texts={"q": text})
    rendered, reader = _read(gather(annotations, runs, VCMR))
    assert rendered.encode("utf-8")
    assert "bell\ufffd null\ufffd half\ufffd escape\ufffd[31m" in reader.text


@pytest.mark.slow
def test_one_query(made: Callable[..., Any]) -> None:
    annotations, runs = made(
        {"q": [("v", 2.0, 8.0, 1.0)]}, {"q": [("v", 2.0, 8.0)]}, {"q": [("w", 1.0, 2.0)]}
    )
    _, reader = _read(gather(annotations, runs, VCMR))
    assert "Nothing fails." in reader.text
    _, alone = _read(gather(annotations, runs[:1], VCMR))
    assert "There is none to show." in alone.text


@pytest.mark.slow
def test_a_run_whose_answers_are_all_empty(made: Callable[..., Any]) -> None:
    truth = {f"q{number}": [("v", 2.0, 8.0, 1.0)] for number in range(3)}
    annotations, runs = made(truth, {query: [] for query in truth})
    _, reader = _read(gather(annotations, runs, VCMR))
    assert "Of 3 queries, 0 (0 %) are answered at rank 1." in reader.text


@pytest.mark.slow
def test_rows_of_videos_only(made: Callable[..., Any]) -> None:
    truth = {f"q{number}": [("v", 2.0, 8.0, 1.0)] for number in range(3)}
    videos = {"q0": [("v", NAN, NAN)], "q1": [("w", NAN, NAN), ("v", NAN, NAN)], "q2": [("w", NAN, NAN)]}
    annotations, runs = made(truth, videos, {"q0": [("v", 2.0, 8.0)]})
    _, reader = _read(gather(annotations, runs[:1], VCMR))
    assert "1 (33 %) has a right video first" in reader.text
    _read(gather(annotations, runs, VCMR))
    listed = MemoryRun("videos.jsonl", {"VR": runs[0].lists["VCMR"]})
    report = gather(annotations, [listed], VCMR)
    assert [row.name for row in report.metrics] == ["VR R@1", "VR R@5", "VR R@10", "VR R@100"]
    assert report.runs[0].class_counts == [1, 0, 0, 1, 1, 0]
    _read(report)


@pytest.mark.usefixtures("no_charts")
def test_unknown_durations_are_said(made: Callable[..., Any]) -> None:
    annotations, runs = made(
        {"q": [("v", 2.0, 8.0, 1.0)], "r": [("w", 2.0, 8.0, 1.0)]},
        {"q": [("v", 7.0, 9.0)]},
        durations={"w": 50},
    )
    _, reader = _read(gather(annotations, runs, VCMR))
    assert "1 video has no known duration" in reader.text
    assert "duration unknown: the axis ends with the last span" in reader.text


@pytest.mark.usefixtures("no_charts")
def test_a_run_that_a_protocol_leaves_queries_out_of(case: Callable[..., Any]) -> None:
    drawn = case(2, 40, graded=True)
    report = gather(drawn.annotations, [drawn.run], PROTOCOLS["rvmr-as-released"])
    _, reader = _read(report)
    assert sum(report.runs[0].class_counts) == 40
    assert "count them as not answered" in reader.text


@pytest.mark.usefixtures("no_charts")
def test_runs_that_cannot_be_compared_are_still_shown(
    case: Callable[..., Any], made: Callable[..., Any]
) -> None:
    truth = {f"q{number}": [("v", 0.0, 4.0, float(number % 3))] for number in range(9)}
    first = {f"q{number}": [("v", 0.0, 4.0)] for number in range(6)}
    second = {f"q{number}": [("v", 1.0, 4.0)] for number in range(3, 9)}
    annotations, runs = made(truth, first, second)
    report = gather(annotations, runs, PROTOCOLS["rvmr-as-released"])
    _, reader = _read(report)
    assert "Whether the two runs really differ cannot be said." in reader.text


def test_more_runs_or_names_that_do_not_fit_are_refused(made: Callable[..., Any]) -> None:
    annotations, (run,) = made({"q": [("v", 2.0, 8.0, 1.0)]}, {"q": [("v", 2.0, 8.0)]})
    with pytest.raises(UsageError, match="3 runs"):
        gather(annotations, [run, run, run], VCMR)
    with pytest.raises(UsageError, match="all different"):
        gather(annotations, [run, run], VCMR, ["same", "same"])
    with pytest.raises(UsageError, match="one name for each run"):
        gather(annotations, [run], VCMR, ["a", "b"])


def test_truth_without_a_query_that_counts_is_refused(made: Callable[..., Any]) -> None:
    annotations, (run,) = made({"q": []}, {"q": [("v", 2.0, 8.0)]})
    with pytest.raises(UsageError, match="no query counts"):
        gather(annotations, [run], VCMR)


@pytest.mark.slow
def test_the_page_is_the_same_each_time(made: Callable[..., Any], two_runs: Report) -> None:
    assert page.render(_two_runs(made)) == page.render(two_runs)


def test_a_page_is_written_whole_or_not_at_all(two_runs: Report, tmp_path: Path) -> None:
    report = two_runs
    path = page.write_page(report, tmp_path / "new" / "folder")
    assert path.read_text(encoding="utf-8") == page.render(report)
    assert [child.name for child in path.parent.iterdir()] == ["index.html"]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        page.write_page(report, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"needs matplotlib.*pip install 'whenabouts\[bench\]'"):
        page.require_packages()


@pytest.mark.slow
def test_the_page_stays_small_with_many_queries(made: Callable[..., Any]) -> None:
    truth = {f"q{number}": [(f"v{number % 50}", 2.0, 8.0, 1.0)] for number in range(700)}
    answers = {
        f"q{number}": [(f"v{(number + rank * (number % 5)) % 50}", 3.0, 9.0) for rank in range(20)]
        for number in range(700)
    }
    annotations, runs = made(truth, answers, answers)
    assert len(page.render(gather(annotations, runs, VCMR))) < 350_000


@pytest.mark.parametrize("count", [0, 1, 2, 299, 300, 301, 5000])
def test_a_sorted_curve_keeps_its_ends_and_falls(count: int) -> None:
    values = np.random.default_rng(count).random(count)
    x, y = thinned(values, 300)
    assert len(x) == len(y) == min(count, 300)
    assert (np.diff(y) <= 0).all() and (np.diff(x) > 0).all()
    if count:
        assert (y[0], y[-1]) == (values.max(), values.min()) and 0 < x[0] <= x[-1] < 1


@pytest.mark.slow
def test_the_page_says_what_was_not_judged() -> None:
    annotations, runs = make_case(
        {"q1": [("v", 0.0, 10.0, 3.0)], "q2": [("w", 0.0, 10.0, 2.0)]},
        {"q1": [("v", 0.0, 10.0), ("x", 0.0, 5.0)], "q2": [("x", 0.0, 5.0)]},
        {"q1": [("v", 0.0, 10.0)], "q2": [("w", 0.0, 10.0)]},
    )
    pooled = replace(annotations, most_grade=4.0)
    report = gather(pooled, runs, VCMR)
    cells = dict(report.unjudged)["R@1,IoU=0.5"]
    assert [(cell.unjudged, cell.answers) for cell in cells] == [(1, 2), (0, 2)]
    assert (cells[0].condensed, cells[0].lower, cells[0].upper) == (0.5, 0.5, 1.0)
    shown = page.render(report)
    words = " ".join(Reader(shown).words)
    assert "Unjudged answers count as wrong above." in words
    assert "1 of 2" in words and "50.00 to 100.00" in words
    assert "an answer is judged from IoU 0.5 with a judged moment" in words
    assert gather(annotations, runs, VCMR).unjudged == ()
    assert "What nobody judged" not in page.render(gather(annotations, runs, VCMR))
