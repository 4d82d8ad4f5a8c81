"""`whenabouts datasets`: list, show, doctor."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whenabouts.types import UsageError
from whenabouts_bench.cli import datasets
from whenabouts_bench.datasets import declarations


def run(*arguments: str) -> int:
    """The exit code of the verb; `main` turns errors into 2."""
    parser = argparse.ArgumentParser()
    datasets.add_parser(parser.add_subparsers(dest="verb", required=True))
    options = parser.parse_args(["datasets", *arguments])
    return int(options.run(options))


@pytest.fixture()
def didemo(tmp_path: Path) -> Path:
    """A folder with one synthetic split of DiDeMo."""
    row = {"annotation_id": 7, "description": "a dog \x1b[31mruns", "video": "x.mov", "num_segments": 6}
    (tmp_path / "val_data.json").write_text(json.dumps([{**row, "times": [[1, 2], [1, 2]]}]))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """The JSON that was printed."""
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("word", [("--table",), ("list", "--table"), ("--table", "list")])
def test_the_known_data_sets_are_listed(word: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*word) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert [line.split("  ")[0] for line in lines] == [dataset.name for dataset in declarations()]
    assert any(
        line.split() == ["tvr", "TVR", "VCMR/SVMR/VR", "train,", "val,", "test_public"] for line in lines
    )


def test_the_list_as_json_says_how_files_are_obtained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    listed = {entry["name"]: entry for entry in told(capsys)}
    assert listed["didemo"]["splits"]["val"] == ["val_data.json", "didemo_val.db/query_data.jsonl"]
    assert "LisaAnne/LocalizingMoments" in listed["didemo"]["how"]
    assert listed["didemo"]["features"][0]["width"] == 4096


def test_a_card_is_shown_for_people_and_programs(didemo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "didemo", str(didemo), "--json") == 0
    [card] = told(capsys)
    assert card["split"] == "val"
    assert card["numbers"]["queries"] == 1
    assert card["first"]["moments"] == [["x", 5.0, 15.0, 1.0]]
    assert run("show", "didemo", str(didemo), "--split", "val", "--table") == 0
    text = capsys.readouterr().out
    assert "x 5.00-15.00, relevance 1" in text
    assert "\x1b" not in text, "what a file says cannot command a terminal"


def test_a_wrong_name_and_a_missing_split_are_errors(didemo: Path) -> None:
    with pytest.raises(UsageError, match="no such data set; known: activitynet-captions"):
        run("show", "didimo", str(didemo))
    with pytest.raises(UsageError, match="split 'train' is not there"):
        run("show", "didemo", str(didemo), "--split", "train")


def test_the_doctor_says_by_its_exit_code_whether_all_is_right(
    didemo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("doctor", str(didemo), "--json") == 1
    report = told(capsys)
    assert report["exit_code"] == 1
    assert [dataset["name"] for dataset in report["datasets"]] == ["didemo"]
    assert run("doctor", str(didemo), "--table") == 1
    assert "missing    train: train_data.json" in capsys.readouterr().out
    (didemo / "val_data.json").write_text('[{"annotation_id": 7}]')
    assert run("doctor", str(didemo), "--table") == 2
    assert "broken     val: " in capsys.readouterr().out


def test_declaring_the_verb_imports_nothing_heavy() -> None:
    program = (
        "import argparse, sys; from whenabouts_bench.cli import datasets;"
        "datasets.add_parser(argparse.ArgumentParser().add_subparsers());"
        "print([name for name in ('torch', 'h5py', 'matplotlib', 'lancedb', 'av') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
