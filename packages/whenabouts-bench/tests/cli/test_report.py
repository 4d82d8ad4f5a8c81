"""`whenabouts report`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="the page is drawn with jinja2")
pytest.importorskip("matplotlib", reason="the curves are drawn with matplotlib")

from whenabouts.types import WhenaboutsError
from whenabouts_bench.cli import report


@pytest.fixture()
def files(tmp_path: Path) -> Path:
    """Judgements and two runs in our own format."""
    truth, old, new = [], [], []
    for number in range(12):
        query, video = f"q{number}", f"v{number}"
        truth.append({"query_id": query, "video_id": video, "start": 2.0, "end": 8.0, "relevance": 1})
        hit = {"video_id": video, "start": 2.0, "end": 7.5, "score": 1.0}
        miss = {"video_id": "elsewhere", "start": 0.0, "end": 1.0, "score": 2.0}
        old.append({"query_id": query, "moments": [miss, hit]})
        new.append({"query_id": query, "moments": [hit] if number else [miss]})
    for name, lines in (("truth", truth), ("old", old), ("new", new)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def _run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    report.add_parser(parser.add_subparsers())
    options = parser.parse_args(["report", *words])
    return int(options.run(options))


@pytest.mark.slow
def test_two_runs_as_people_read_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--truth", f"{files}/truth.jsonl", "--run", f"{files}/old.jsonl", "--run", f"{files}/new.jsonl"]
    assert _run(*words, "--out", f"{files}/out", "--name", "before", "--name", "after", "--table") == 0
    said = capsys.readouterr().out
    assert "before: Of 12 queries, 0 (0 %) are answered at rank 1." in said
    assert "after: Of 12 queries, 11 (92 %) are answered at rank 1." in said
    assert "after is better than before" in said and "before has 0.0 %, after 91.7 %:" in said
    page = files / "out" / "index.html"
    assert f"see {page}" in said
    assert "before" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_run_as_programs_read_it(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--truth", f"{files}/truth.jsonl", "--run", f"{files}/old.jsonl", "--protocol", "vcmr"]
    assert _run(*words, "--out", f"{files}/out", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["page"], told["protocol"], told["verdict"]) == (f"{files}/out/index.html", "vcmr@1", None)
    (run,) = told["runs"]
    assert run["name"] == "old" and run["classes"]["ranked-low"] == 12 == sum(run["classes"].values())


def test_bad_input_leaves_no_page(files: Path) -> None:
    (files / "broken.jsonl").write_text('{"query_id": "q0", "moments": [{"video_id": "v0", "sta\n')
    for run, more in (("broken", ()), ("missing", ()), ("old", ("--protocol", "nothing"))):
        with pytest.raises(WhenaboutsError):
            _run(
                "--truth",
                f"{files}/truth.jsonl",
                "--run",
                f"{files}/{run}.jsonl",
                "--out",
                f"{files}/out",
                *more,
            )
    assert not (files / "out").exists()
