"""`whenabouts export`: a search, a file of answers or a named moment, as a list."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from whenabouts import export
from whenabouts.cli.main import build_parser
from whenabouts.confidence.probability import PROBABLE
from whenabouts.export import format_names
from whenabouts.export.moments import moment_of_file
from whenabouts.export.options import Options
from whenabouts.index.store import Store
from whenabouts.search.search_result import is_matched
from whenabouts.types import Answer

Whenabouts = Callable[..., Any]
SAID = "somebody has stolen the crown jewels"


@pytest.fixture(autouse=True)
def no_corpus_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHENABOUTS_CORPUS", raising=False)


def test_a_search_becomes_an_edit_list(whenabouts: Whenabouts, tmp_path: Path) -> None:
    done = whenabouts("export", SAID, "-k", "2", "--within", "friday", "--out", tmp_path / "out.edl")
    assert done.code == 0 and done.out == ""
    text = (tmp_path / "out.edl").read_text()
    assert text.startswith(f"TITLE: {SAID}")
    assert "* FROM CLIP NAME: friday.mp4" in text
    assert f"{tmp_path / 'out.edl'}: " in done.err


def test_a_list_gets_the_title_and_the_count_that_are_named(whenabouts: Whenabouts, tmp_path: Path) -> None:
    command = ("export", "--moment", "friday@1-2", "--rate", "29.97", "--title", "Jewels", "--out")
    for option, mode in (("--drop-frame", "FCM: DROP FRAME"), ("--non-drop-frame", "FCM: NON-DROP FRAME")):
        done = whenabouts(*command, tmp_path / f"{option[2:]}.edl", option)
        assert done.code == 0, done.err
        assert (tmp_path / f"{option[2:]}.edl").read_text().splitlines()[:2] == ["TITLE: Jewels", mode]


def test_the_help_names_the_formats_that_a_rate_changes(samples: Path) -> None:
    moment = moment_of_file(samples / "friday.mp4", 1.3, 2.4)
    rates = (Options(rate=None), Options(rate=Fraction(10)))
    changed = {
        name
        for name in ("csv", "edl", "fcpxml", "ffconcat", "json", "m3u", "mpv", "otio", "premiere", "vtt")
        if len({export.render([moment], name, options)[0] for options in rates}) == 2
    }
    (verbs,) = build_parser(["export"])._subparsers._group_actions  # type: ignore[union-attr]
    (rate,) = (each for each in verbs.choices["export"]._actions if each.dest == "rate")  # type: ignore
    assert changed == set(format_names()) & set(re.findall(r"\w+", rate.help))


def test_search_export_and_from_agree(whenabouts: Whenabouts, bare: Whenabouts, tmp_path: Path) -> None:
    found = whenabouts("search", SAID, "--within", "friday", "-k", "3").json
    (tmp_path / "results.json").write_text(json.dumps(found))
    searched = whenabouts("export", SAID, "--within", "friday", "-k", "3", "--format", "json").json
    taken = bare("export", "--from", tmp_path / "results.json", "--format", "json").json
    assert searched["moments"] == taken["moments"]
    # Moments that did not match are in neither export.
    shown = [
        moment
        for moment in found["moments"]
        if is_matched("match", moment["confidence"], is_first=moment["rank"] == 1)
    ]
    assert found["answer"] == "match" and 0 < len(shown) < len(found["moments"])
    for key in ("rank", "video_id", "path", "start", "end", "score", "confidence", "text", "link"):
        assert [m[key] for m in searched["moments"]] == [m[key] for m in shown]
    assert all(m["first_frame"] < m["end_frame"] for m in searched["moments"])


def test_moments_are_named_in_a_corpus_or_by_file(
    whenabouts: Whenabouts, bare: Whenabouts, samples: Path
) -> None:
    named = whenabouts(
        "export", "--moment", "friday@1-2", "--moment", "flower.webm@0:01-0:02.5", "--format", "csv"
    )
    rows = list(csv.DictReader(io.StringIO(named.out.removeprefix("\ufeff"))))
    assert [(row["rank"], row["name"], row["title"], row["first_frame"]) for row in rows] == [
        ("1", "friday.mp4", "friday", "30"),
        ("2", "flower.webm", "flower", "30"),
    ]
    by_file = bare("export", "--moment", f"{samples / 'friday.mp4'}@1-2", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(by_file.out))
    assert (row["path"], row["first_frame"], row["end_frame"]) == (str(samples / "friday.mp4"), "30", "60")


@pytest.mark.slow
def test_what_did_not_match_is_written_only_when_all_is_asked_for(
    whenabouts: Whenabouts, bare: Whenabouts, tmp_path: Path
) -> None:
    search = (SAID, "--within", "friday", "-k", "3")
    found = whenabouts("search", *search).json
    (tmp_path / "results.json").write_text(json.dumps(found))
    matched = whenabouts("export", *search, "--format", "json")
    assert f"{len(matched.json['moments'])} of 3 moments matched; --all-moments takes all" in matched.err
    whole = whenabouts("export", *search, "--format", "json", "--all-moments")
    again = bare("export", "--from", tmp_path / "results.json", "--format", "json", "--all-moments")
    starts = [moment["start"] for moment in found["moments"]]
    assert (
        [m["start"] for m in whole.json["moments"]] == [m["start"] for m in again.json["moments"]] == starts
    )
    assert "matched" not in whole.err


@pytest.mark.parametrize(
    ("answer", "confidence", "is_first", "taken"),
    [
        ("match", PROBABLE.match_at, False, True),
        ("match", PROBABLE.match_at - 0.01, False, False),
        ("match", 0.0, True, True),
        ("match", None, False, True),
        ("unsure", PROBABLE.no_match_below, False, True),
        ("unsure", PROBABLE.no_match_below - 0.01, False, False),
        ("no_match", 0.99, True, False),
    ],
)
def test_a_moment_is_taken_by_the_answer_and_its_probability(
    answer: Answer, confidence: float | None, is_first: bool, taken: bool
) -> None:
    assert is_matched(answer, confidence, is_first=is_first) is taken


def test_no_match_writes_nothing(
    whenabouts: Whenabouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whenabouts.search.search_result import SearchResult

    monkeypatch.setattr(
        "whenabouts.search.searcher.Searcher.search", lambda *a, **k: SearchResult("x", "no_match", ())
    )
    done = whenabouts("export", "x", "--out", tmp_path / "out.edl")
    assert (done.code, done.out) == (1, "")
    assert "no match, so nothing was written" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_answers_without_a_match_writes_nothing(
    whenabouts: Whenabouts, bare: Whenabouts, tmp_path: Path
) -> None:
    closest = {**whenabouts("search", SAID, "--within", "friday").json, "answer": "no_match"}
    (tmp_path / "results.json").write_text(json.dumps(closest))
    done = bare("export", "--from", tmp_path / "results.json", "--format", "csv")
    assert (done.code, done.out) == (1, "") and "no match, so nothing was written" in done.err
    (tmp_path / "results.json").write_text(json.dumps({**closest, "answer": "perhaps"}))
    done = bare("export", "--from", tmp_path / "results.json", "--format", "csv")
    assert done.code == 2 and "answer: 'perhaps'; accepted: match, unsure, no_match" in done.err


def test_a_time_code_counts_frames_at_the_rate_of_the_video(
    whenabouts: Whenabouts, bare: Whenabouts, samples: Path
) -> None:
    for run, video in ((whenabouts, "friday"), (bare, samples / "friday.mp4")):
        done = run("export", "--moment", f"{video}@00:00:01:15–00:00:02:10", "--format", "csv")
        (row,) = csv.DictReader(io.StringIO(done.out))
        assert (row["first_frame"], row["end_frame"]) == ("45", "70")
    done = whenabouts("export", "--moment", "nasa_audio_only@00:00:01:15-00:00:02:10", "--format", "csv")
    assert done.code == 2 and "frame rate of that video is not known" in done.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--format", "csv"), "which moments?"),
        (("x", "--from", "results.json", "--format", "csv"), "which moments?"),
        (("x", "--moment", "friday@1-2", "--format", "csv"), "which moments?"),
        (("x", "--format", "aaf"), "not a format"),
        (("x", "--out", "list.doc"), "does not tell the format"),
        (("x",), "--format"),
        (("--moment", "friday@2-1", "--format", "csv"), "start < end"),
        (("--moment", "friday", "--format", "csv"), "VIDEO@START-END"),
        (("--moment", "nowhere@1-2", "--format", "csv"), "whenabouts show"),
        (("--moment", "friday@100-200", "--format", "edl"), "s; times count from the start of the file"),
        (("--from", "/nowhere/results.json", "--format", "csv"), "cannot be read"),
        (("--moment", "friday@1-2", "--format", "edl", "--rate", "0"), "not a frame rate"),
        (("--moment", "friday@1-2", "--format", "edl", "--start-timecode", "1"), "is not a time code"),
        (("--moment", "friday@1-2", "--format", "edl", "--drop-frame"), "drop-frame exists"),
        (("--moment", "friday@1-2", "--format", "edl", "--drop-frame", "--non-drop-frame"), "not allowed"),
    ],
)
def test_what_cannot_be_done_is_told(whenabouts: Whenabouts, arguments: tuple[str, ...], told: str) -> None:
    done = whenabouts("export", *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_a_file_alone_needs_no_corpus_and_a_video_of_one_does(bare: Whenabouts) -> None:
    done = bare("export", "--moment", "friday@1-2", "--format", "csv")
    assert done.code == 2 and "give --corpus DIR" in done.err


def test_what_is_there_already_is_left(whenabouts: Whenabouts, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    done = whenabouts("export", "--moment", "friday@1-2", "--out", out)
    assert done.code == 2 and "is there already" in done.err and out.read_text() == "mine"
    assert whenabouts("export", "--moment", "friday@1-2", "--out", out, "--force").code == 0
    assert out.read_text("utf-8-sig").startswith("rank,")


@pytest.mark.slow
def test_a_video_replaced_after_it_was_indexed_is_refused(
    bare: Whenabouts, samples: Path, tmp_path: Path
) -> None:
    film = tmp_path / "friday.mp4"
    film.write_bytes((samples / "friday.mp4").read_bytes())
    (tmp_path / "friday.vtt").write_bytes((samples / "friday.vtt").read_bytes())
    corpus = tmp_path / "own.corpus"
    assert bare("index", film, "--corpus", corpus, "--processes", "1").code == 0
    assert Store.open(corpus).videos()
    arguments = ("--corpus", corpus, "--moment", "friday@1-2", "--format", "edl")
    assert bare("export", *arguments).code == 0
    printed = bare("search", SAID, "--corpus", corpus).out
    (tmp_path / "results.json").write_text(printed)
    film.write_bytes((samples / "flower.webm").read_bytes())
    for how in (
        arguments,
        (SAID, *arguments[:2], "--format", "csv", "--unsure"),
        ("--from", tmp_path / "results.json", *arguments[:2], "--format", "csv"),
    ):
        done = bare("export", *how)
        assert done.code == 2 and "has changed since it was indexed" in done.err
    film.unlink()
    done = bare("export", *arguments)
    assert done.code == 2 and "is gone" in done.err


@pytest.mark.slow
def test_standard_output_carries_bytes_as_they_are(samples: Path, tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    try:
        place.symlink_to(samples / "friday.mp4")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    command = [sys.executable, "-m", "whenabouts", "export", "--format", "ffconcat", "--moment"]
    done = subprocess.run(
        [*map(os.fsencode, command), os.fsencode(place) + b"@1-2"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"caf\xe9.mp4'" in done.stdout
