"""The division of the recordings that have titles (`benchmarks/division.json`), and reports by it."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import spoken_search
from benchmarks.spoken_search import Title, add_report, chosen_on, division, parts


def titles_of(*recordings: str) -> list[Title]:
    return [Title("a title", name, 0.0, 10.0, name.partition("_")[0]) for name in recordings]


def test_no_recording_is_in_two_parts() -> None:
    divided = division()
    every = [name for own in divided.values() for name in own]
    assert len(every) == len(set(every)) == 54
    assert chosen_on() == divided["learning"] | divided["choosing"]


def test_parts_have_the_titles_of_their_recordings() -> None:
    divided = division()
    titles = titles_of(*sorted(divided["learning"])[:2], *sorted(divided["reporting"])[-1:])
    masks = dict(parts(titles))
    assert masks["all"].all()
    assert masks["learning"].tolist() == [True, True, False]
    assert masks["reporting"].tolist() == [False, False, True]
    assert "choosing" not in masks


def test_parts_without_reporting_titles_name_no_reporting_part() -> None:
    titles = titles_of(*sorted(chosen_on()))
    assert not any("reporting" in name for name in dict(parts(titles)))


def test_each_report_adds_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spoken_search, "REPORTED", tmp_path / "reported.json")
    row = {f"hit@{n}": 0.5 for n in (1, 5, 10)} | {f"hit@{n} interval": [0.4, 0.6] for n in (1, 5, 10)}
    add_report("first", {"whenabouts": row | {"median length": 3.0}})
    add_report("second", {"whenabouts": row})
    reports = json.loads((tmp_path / "reported.json").read_text(encoding="utf-8"))
    assert [report["change"] for report in reports] == ["first", "second"]
    assert reports[0]["hit@5"] == 0.5
    assert "median length" not in reports[0]


def test_an_interval_draws_whole_recordings() -> None:
    hits = np.array([True, True, True, False])
    low, high = spoken_search.intervals(hits, ["a", "a", "a", "b"])
    assert low == 0.0
    assert high == 1.0
