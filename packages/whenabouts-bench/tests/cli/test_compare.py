"""`whenabouts compare`."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Whenabouts = Callable[..., Any]
QUERIES = 90


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def answers(path: Path, share: float, seed: int, queries: int = QUERIES) -> str:
    """A run that finds about this share of the moments."""
    luck, own = random.Random(0), random.Random(seed)
    rows = []
    for number in range(queries):
        found = 0.7 * luck.random() + 0.3 * own.random() < share
        start = float(number) if found else number + 50.0
        moment = {"video_id": f"v{number // 3}", "start": start, "end": start + 10, "score": 1.0}
        rows.append({"query_id": f"q{number}", "moments": [moment]})
    return write(path, rows)


@pytest.fixture()
def truth(tmp_path: Path) -> str:
    rows = [
        {"query_id": f"q{n}", "video_id": f"v{n // 3}", "start": float(n), "end": n + 10.0, "relevance": 1}
        for n in range(QUERIES)
    ]
    return write(tmp_path / "truth.jsonl", rows)


@pytest.fixture()
def runs(tmp_path: Path) -> list[str]:
    return [
        answers(tmp_path / "old.jsonl", 0.4, 1),
        answers(tmp_path / "new.jsonl", 0.7, 2, QUERIES - 1),
        answers(tmp_path / "other_50%.jsonl", 0.4, 3),
    ]


ONE = ("--metric", "R@1,IoU=0.5", "--resamples", "500")


def test_numbers_for_programs(bare: Whenabouts, truth: str, runs: list[str]) -> None:
    done = bare("compare", "--truth", truth, *runs, *ONE)
    assert done.code == 0, done.err
    told = done.json
    assert (told["protocol"], told["queries"], told["videos"]) == ("vcmr@1", QUERIES, QUERIES // 3)
    assert [(s["name"], s["missing_queries"]) for s in told["systems"]] == [
        ("old", 0),
        ("new", 1),
        ("other_50%", 0),
    ]
    verdicts = {pair["system"]: pair["metrics"]["R@1,IoU=0.5"]["verdict"] for pair in told["comparisons"]}
    assert verdicts == {"new": "better", "other_50%": "no difference shown"}


def test_the_means_are_those_of_evaluate(truth: str, runs: list[str], bare: Whenabouts) -> None:
    from whenabouts_bench.evaluation.evaluate import evaluate

    told = bare("compare", "--truth", truth, *runs, "--resamples", "100").json
    for system, run in zip(told["systems"], runs, strict=True):
        means = {name: mean["mean"] for name, mean in system["metrics"].items()}
        assert means == evaluate(truth, run).means()


def test_several_comparisons_are_corrected_as_named(bare: Whenabouts, truth: str, runs: list[str]) -> None:
    def corrected(name: str) -> str:
        return str(bare("compare", "--truth", truth, *runs, *ONE, "--correction", name, "--table").out)

    assert "Holm's correction" in corrected("holm") and "Bonferroni's correction" in corrected("bonferroni")
    assert "'s correction" not in corrected("none")


def test_the_same_seed_gives_the_same_numbers(bare: Whenabouts, truth: str, runs: list[str]) -> None:
    first, again, other = (
        bare("compare", "--truth", truth, *runs, *ONE, "--seed", seed).out for seed in "003"
    )
    assert first == again != other


def test_a_table_for_people(bare: Whenabouts, truth: str, runs: list[str]) -> None:
    done = bare("compare", "--truth", truth, *runs, *ONE, "--table")
    assert done.code == 0
    assert done.out.startswith(
        "vcmr@1: 90 queries about 30 videos\n  Judged queries not answered: 1 by new; "
    )
    assert "not that the runs are equal" in done.out


def test_a_table_for_a_paper(bare: Whenabouts, truth: str, runs: list[str]) -> None:
    done = bare("compare", "--truth", truth, *runs, *ONE, "--latex", "--baseline", "each-pair")
    assert done.code == 0
    assert r"\toprule" in done.out
    assert r"(c)~other\_50\%" in done.out
    assert "$^{a,c}$" in done.out


def test_queries_of_several_videos_are_told_of(bare: Whenabouts, truth: str, runs: list[str]) -> None:
    with Path(truth).open("a", encoding="utf-8") as more:
        more.write('{"query_id": "q0", "video_id": "v9", "start": 1, "end": 2, "relevance": 1}\n')
    told = bare("compare", "--truth", truth, *runs, *ONE).json
    assert any(note.startswith("Queries with right moments in several videos: 1.") for note in told["notes"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--metric", "R@one"], "R@one"),
        (["--protocol", "tvrr"], "tvrr"),
        (["--alpha", "2"], "alpha 2.0"),
        (["--resamples", "5"], "5 resamples"),
        (["--latex", "--json"], "choose one"),
        (["--baseline", "best"], "best"),
        (["--format", "nothing"], "nothing"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    bare: Whenabouts, truth: str, runs: list[str], more: list[str], said: str
) -> None:
    done = bare("compare", "--truth", truth, *runs, *more)
    assert done.code == 2
    assert done.out == ""
    assert said in done.err.splitlines()[-1]


def test_one_run_is_not_enough(bare: Whenabouts, truth: str, runs: list[str]) -> None:
    done = bare("compare", "--truth", truth, runs[0])
    assert done.code == 2
    assert "two or more" in done.err


def test_a_missing_file_and_a_run_of_another_data_set_are_named(
    bare: Whenabouts, truth: str, runs: list[str], tmp_path: Path
) -> None:
    gone = bare("compare", "--truth", truth, runs[0], str(tmp_path / "gone.jsonl"))
    assert gone.code == 2 and "gone.jsonl" in gone.err
    moment = {"video_id": "v0", "start": 1.0, "end": 2.0, "score": 1.0}
    strange = write(tmp_path / "strange.jsonl", [{"query_id": "none of ours", "moments": [moment]}])
    other = bare("compare", "--truth", truth, runs[0], strange)
    assert other.code == 2 and "strange.jsonl" in other.err and "another data set" in other.err


def test_runs_of_several_trainings_are_compared_as_systems(
    bare: Whenabouts, truth: str, tmp_path: Path
) -> None:
    old = [answers(tmp_path / f"old-{seed}.jsonl", 0.4, seed) for seed in (1, 2, 3)]
    new = [answers(tmp_path / f"new-{seed}.jsonl", 0.8, seed) for seed in (1, 2, 3)]
    alone = [bare("compare", "--truth", truth, a, b, *ONE).json for a, b in zip(old, new, strict=True)]
    done = bare("compare", "--truth", truth, *old, *new, "--trainings", "3", *ONE)
    assert done.code == 0, done.err
    told = done.json
    assert [system["name"] for system in told["systems"]] == ["old", "new"]
    assert (told["trainings"], told["test"]) == (3, "Student's t, random effects of training and video")
    found = told["comparisons"][0]["metrics"]["R@1,IoU=0.5"]
    means = [each["comparisons"][0]["metrics"]["R@1,IoU=0.5"]["difference"] for each in alone]
    assert found["difference"] == pytest.approx(sum(means) / 3)
    assert found["verdict"] == "better"
    assert found["low"] < found["difference"] < found["high"]
    shown = bare("compare", "--truth", truth, *old, *new, "--trainings", "3", *ONE, "--table").out
    assert "Each system was trained 3 times" in " ".join(shown.split())
    latex = bare("compare", "--truth", truth, *old, *new, "--trainings", "3", *ONE, "--latex").out
    assert "3 trainings" in latex


def test_a_file_is_not_taken_for_two_trainings(bare: Whenabouts, truth: str, tmp_path: Path) -> None:
    one, other, third = (answers(tmp_path / f"{seed}.jsonl", 0.5, seed) for seed in (1, 2, 3))
    (tmp_path / "link.jsonl").symlink_to(other)
    for twice in (one, str(tmp_path / "link.jsonl")):
        done = bare("compare", "--truth", truth, one, other, third, twice, "--trainings", "2", *ONE)
        assert done.code == 2 and f"{twice}: is named twice" in done.err


@pytest.mark.parametrize("changed", ["nothing", "packed", "order", "scores"])
def test_a_copy_is_no_second_training_whatever_its_bytes(
    bare: Whenabouts, truth: str, tmp_path: Path, changed: str
) -> None:
    one, other, third = (answers(tmp_path / f"{seed}.jsonl", 0.5, seed) for seed in (1, 2, 3))
    text = Path(third).read_text(encoding="utf-8")
    copy = tmp_path / ("copy.jsonl.gz" if changed == "packed" else "copy.jsonl")
    if changed == "order":
        text = "".join(reversed(text.splitlines(keepends=True)))
    if changed == "scores":
        rows = [json.loads(line) for line in text.splitlines()]
        for row in rows:
            for moment in row["moments"]:
                moment["score"] = 0.5 * moment["score"] - 7
        text = "".join(json.dumps(row) + "\n" for row in rows)
    copy.write_bytes(gzip.compress(text.encode()) if changed == "packed" else text.encode())
    done = bare("compare", "--truth", truth, one, other, third, str(copy), "--trainings", "2", *ONE)
    assert done.code == 2 and f"{copy}: is a copy of {third}" in done.err


def test_trainings_that_do_not_fill_the_systems_are_told(
    bare: Whenabouts, truth: str, runs: list[str]
) -> None:
    done = bare("compare", "--truth", truth, *runs, "--trainings", "2", *ONE)
    assert done.code == 2
    assert "3 runs cannot be divided into systems with 2 trainings each" in done.err
    done = bare("compare", "--truth", truth, *runs, "--trainings", "3", *ONE)
    assert "1 system: a comparison needs two or more" in done.err
