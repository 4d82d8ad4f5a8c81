"""`whenabouts doctor` and `whenabouts doctor why`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from whenabouts import plugins

Whenabouts = Callable[..., Any]


def test_the_state_of_the_installation(bare: Whenabouts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHENABOUTS_CORPUS", raising=False)
    done = bare("doctor")
    assert done.code == 0
    report = done.json
    assert report["healthy"] is True
    names = [finding["name"] for finding in report["findings"]]
    assert {"this machine", "lancedb", "av", "onnxruntime"} <= set(names)
    assert any("minilm" in name for name in names)
    for finding in report["findings"]:
        assert set(finding) == {"name", "well", "needed", "seen", "remedy"}
        assert finding["seen"]


def test_what_is_amiss_stands_with_its_remedy(bare: Whenabouts) -> None:
    lines = bare("doctor", "--table").out.splitlines()
    for line in lines:
        assert line.startswith(("      ok  ", " PROBLEM  ", " without  ", "          -> "))


@pytest.fixture
def odd_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Installs a package whose entry `odd` of a group is a module with the given code."""

    def install(group: str, code: str) -> None:
        folder = tmp_path / "odd-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Name: odd\nVersion: 1.0\n", encoding="utf-8")
        (folder / "entry_points.txt").write_text(
            f"[whenabouts.{group}]\nodd = odd_{group}\n", encoding="utf-8"
        )
        (tmp_path / f"odd_{group}.py").write_text(code, encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, f"odd_{group}", raising=False)
        plugins.entries.cache_clear()

    yield install
    plugins.entries.cache_clear()


@pytest.mark.parametrize(
    ("group", "code", "named", "seen"),
    [
        ("streams", "raise RuntimeError('no light')", "plugin odd of streams", "no light"),
        ("routes", "import absent_package", "plugin odd of routes", "absent_package"),
        (
            "streams",
            "order = 60",
            "plugin odd of streams",
            "accepted: STREAM or a module with it; fix",
        ),
        ("encoders", "raise RuntimeError('no graph')", "plugin odd of encoders", "no graph"),
        ("encoders", "PREFIX = 'odd'", "plugin odd of encoders", "it lacks recognises, status; fix it, or"),
        (
            "encoders",
            "PREFIX, recognises = 'odd', str.islower\ndef status(): raise ValueError('no state')\n",
            "broken encoder odd",
            "status() of odd_encoders raises ValueError: no state",
        ),
        (
            "encoders",
            "PREFIX, recognises, status = 'odd', str.islower, dict",
            "broken encoder odd",
            "status() of odd_encoders returns {}; fix",
        ),
    ],
)
def test_a_broken_plugin_is_named_as_a_problem(
    bare: Whenabouts,
    odd_package: Callable[[str, str], None],
    group: str,
    code: str,
    named: str,
    seen: str,
) -> None:
    odd_package(group, code)
    done = bare("doctor", "--json")
    assert (done.code, done.json["healthy"]) == (2, False)
    [problem] = [each for each in done.json["findings"] if each["name"] == named]
    assert (problem["well"], problem["needed"]) == (False, True)
    assert seen in problem["seen"]


def test_a_plugin_that_lacks_a_package_is_no_problem(
    bare: Whenabouts, odd_package: Callable[[str, str], None]
) -> None:
    odd_package("routes", "raise ModuleNotFoundError(name='fastapi')")
    done = bare("doctor", "--table")
    assert done.code == 0
    assert " without  plugin odd of routes: fastapi is not installed" in done.out


def test_the_state_of_a_corpus(whenabouts: Whenabouts, bare: Whenabouts, tmp_path: Path) -> None:
    done = whenabouts("doctor")
    assert done.code == 0
    names = [finding["name"] for finding in done.json["findings"]]
    assert "stream subtitle" in names
    missing = bare("doctor", "--corpus", str(tmp_path / "none"))
    assert missing.code == 2
    assert missing.json["healthy"] is False


def test_a_corpus_below_home(corpus: Path, bare: Whenabouts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(corpus.parent))
    done = bare("doctor", f"--corpus=~/{corpus.name}")
    assert done.code == 0
    assert any(finding["name"] == "disk" for finding in done.json["findings"])


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_why_a_moment_was_found(whenabouts: Whenabouts, form: str) -> None:
    done = whenabouts("doctor", "why", "crown jewels", "friday.mp4@0:04-0:06", form)
    assert done.code == 0
    if form == "--json":
        why = done.json
        assert set(why) == {"query", "moment", "found", "rank", "localized", "streams", "lost_to"}
        assert (why["found"], why["rank"], why["lost_to"]) == (True, 1, [])
        assert why["moment"] == {"video_id": "friday-f6459d1a", "start": 4.0, "end": 6.0}
        (stream,) = why["streams"]
        assert set(stream) == {
            "stream",
            "clips_in_moment",
            "absent",
            "clip_rank",
            "video_rank",
            "score",
            "best_score_in_other_videos",
            "localized",
            "second_look",
        }
    else:
        assert "found: rank 1" in done.out


def test_why_a_moment_was_not_found_is_exit_code_one(whenabouts: Whenabouts) -> None:
    done = whenabouts("doctor", "why", "the space telescope", "really?.vtt@0-4", "-k", "2")
    assert done.code == 1
    assert done.json["found"] is False
    assert 0 < len(done.json["lost_to"]) <= 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["", "friday@4-6"], "say in a few words"),
        (["crown", "friday"], "VIDEO@START-END"),
        (["crown", "friday@6-4"], "start < end"),
        (["crown", "nowhere@4-6"], "whenabouts show"),
        (["crown", "twin@1-2"], "give the id"),
        (["crown", "friday@4-6", "-k", "0"], "1 to 1000"),
    ],
)
def test_why_refuses_what_search_refuses(whenabouts: Whenabouts, arguments: list[str], told: str) -> None:
    done = whenabouts("doctor", "why", *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


@pytest.mark.parametrize("query", ["\udcff", "crown " * 10_000, "🦁", "\x00"])
def test_why_takes_every_question_that_search_takes(whenabouts: Whenabouts, query: str) -> None:
    assert whenabouts("doctor", "why", "--table", "--", query, "friday@4-6").code in (0, 1)


def test_the_corpus_may_stand_before_or_after_why(bare: Whenabouts, corpus: Path) -> None:
    arguments = ["crown jewels", "friday@4-6"]
    before = bare("doctor", "--corpus", str(corpus), "why", *arguments)
    after = bare("doctor", "why", *arguments, "--corpus", str(corpus))
    assert before.json == after.json
