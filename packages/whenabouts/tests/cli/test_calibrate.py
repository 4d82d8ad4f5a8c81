"""`whenabouts calibrate`."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.calibration import measuring
from whenabouts.calibration.measuring import calibrate
from whenabouts.cli import calibrate as calibrate_verb
from whenabouts.types import UsageError, WhenaboutsError

pytestmark = pytest.mark.slow

RATE_KEYS = {"rate", "low", "high", "count", "of", "effective"}
KNOWN = [
    {"query": "space telescope", "video": "nasa_13013.mp4", "start": 2.0, "end": 10.0},
    {"query": "crown jewels were stolen", "video": "friday.mp4", "start": 4.0, "end": 6.0},
]

Calibrate = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, samples_corpus: Path) -> Path:
    """A corpus of the sample videos that only this file uses."""
    return Path(shutil.copytree(samples_corpus, tmp_path_factory.mktemp("calibrate") / "samples.corpus"))


@pytest.fixture()
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the questions made from the corpus once for all tests."""
    measure = measuring.calibrate

    def calibrate(corpus: Corpus, queries: str | None = None, **options: Any) -> measuring.Report:
        if queries is not None:
            return measure(corpus, queries, **options)
        if not _REPORTS:
            _REPORTS.append(measure(corpus, None, **options))
        return _REPORTS[0]

    monkeypatch.setattr(measuring, "calibrate", calibrate)


_REPORTS: list[measuring.Report] = []


@pytest.fixture()
def calibrated(place: Path, measured_once: None) -> Calibrate:
    """Runs the command on that corpus."""
    parser = argparse.ArgumentParser()
    calibrate_verb.add_parser(parser.add_subparsers())

    def run(*arguments: str) -> tuple[int, str]:
        options = parser.parse_args(["calibrate", "--corpus", str(place), *arguments])
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = int(options.run(options))
        return code, out.getvalue()

    return run


def test_rates_with_intervals_for_programs_are_those_that_a_search_hands_on(calibrated: Calibrate) -> None:
    code, out = calibrated("--json")
    said: dict[str, Any] = json.loads(out)
    assert code == 0
    rates = said["calibration"]
    for name in ("false_alarm_rate", "false_alarm_rate_taken_out", "miss_rate"):
        assert set(rates[name]) == RATE_KEYS
        assert 0 <= rates[name]["low"] <= (rates[name]["rate"] or 0) <= rates[name]["high"] <= 1
    assert rates["false_alarm_rate"]["of"] == 235
    assert rates["false_alarm_rate"]["rate"] <= 0.1
    assert rates["questions"] == "made of the corpus"
    assert said["streams"] == {"subtitle": {"clips": 13, "calibrated": True}}
    assert all(0 <= row["from"] <= row["stated"] <= row["to"] <= 1 for row in said["reliability"])
    assert 0 <= rates["expected_calibration_error"] <= 1 and said["notes"] == []
    assert said["files"] == []


def test_a_table_shows_both_diagrams(calibrated: Calibrate) -> None:
    code, out = calibrated("--table")
    assert code == 0
    for word in ("false alarms", "misses", "reliability", "risk and coverage", "#", "%"):
        assert word in out
    assert all(len(line) <= 110 for line in out.splitlines())


def test_given_questions_and_figures(calibrated: Calibrate, tmp_path: Path) -> None:
    queries = tmp_path / "known.jsonl"
    queries.write_text("".join(json.dumps(one) + "\n" for one in KNOWN), encoding="utf-8")
    folder = tmp_path / "new" / "figures"
    _, out = calibrated("--queries", str(queries), "--out", str(folder), "--json")
    said = json.loads(out)
    assert said["calibration"]["questions"] == "given"
    assert said["calibration"]["miss_rate"]["of"] == 2
    names = [
        "reliability.svg",
        "reliability.png",
        "risk_coverage.svg",
        "risk_coverage.png",
        "calibration.json",
    ]
    assert [Path(path).name for path in said["files"]] == names
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for name in names:
        content = (folder / name).read_bytes()
        if name.endswith(".svg"):
            assert ET.fromstring(content).tag.endswith("svg")
        elif name.endswith(".png"):
            assert content.startswith(b"\x89PNG") and len(content) > 5000
        else:
            assert json.loads(content)["calibration"] == said["calibration"]


def test_a_bad_line_leaves_what_was_measured(calibrated: Calibrate, place: Path, tmp_path: Path) -> None:
    before = Corpus(place).store.fact("calibration:subtitle")
    assert before
    queries = tmp_path / "known.jsonl"
    queries.write_text(json.dumps({**KNOWN[0], "video": "gone.mp4"}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"known\.jsonl, line 1: .*has no video 'gone\.mp4'"):
        calibrated("--queries", str(queries))
    queries.write_text(json.dumps({**KNOWN[1], "start": 500.0, "end": 600.0}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"1 question left out: behind the end of the video \(line 1\)"):
        calibrated("--queries", str(queries))
    assert Corpus(place).store.fact("calibration:subtitle") == before


def test_a_corpus_of_one_short_video_is_measured_too_and_its_answers_leave_more_open(
    tmp_path: Path, samples: Path
) -> None:
    corpus = Corpus(tmp_path / "one.corpus", create=True)
    with uncalibrated():
        corpus.add(samples / "friday.mp4", processes=1)
    report = calibrate(corpus)
    rates = report.to_json()["calibration"]
    assert rates["false_alarm_rate"]["of"] == 40  # few clips: the same few are found again
    assert len(report.write(tmp_path / "out")) >= 3
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    with pytest.raises(WhenaboutsError, match=r"taken.* cannot be written: "):
        report.write(tmp_path / "taken")
    result = corpus.search("crown jewels were stolen")
    assert result.answer != "no_match" and result.interval is not None
    assert result.interval[1] - result.interval[0] > 0.2
    assert corpus.search("the eruption of Mount Vesuvius").answer != "match"
    assert corpus.stats().to_json()["calibration"] == rates


def test_an_empty_corpus_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is empty; fill it with"):
        calibrate(
            Corpus(tmp_path / "empty.corpus", create=True),
        )
