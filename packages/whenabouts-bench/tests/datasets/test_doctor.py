"""The doctor reports files that are present or missing, how to obtain them, and verifies them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.types import UsageError
from whenabouts_bench.datasets import declaration_named, doctor, open_dataset
from whenabouts_bench.datasets.declaration import Declaration, FeatureFile
from whenabouts_bench.datasets.doctor import Finding, Report, examine

Release = Callable[[str], Path]

SHOWN = FeatureFile(
    ("clips.h5",), "video", "HDF5, video id -> (clips, width)", 4, "a test", "Ask.", 2.0, True
)


def of_kind(report: Report, kind: str) -> list[Finding]:
    """Findings of the one data set that was found."""
    [dataset] = report.datasets
    return [finding for finding in dataset.findings if finding.kind == kind]


def agreeing(release: Path, **changes: Any) -> Declaration:
    """DiDeMo as it would be declared if its synthetic release were the real one."""
    dataset = open_dataset("didemo", release)
    splits = []
    for split in dataset.declaration.splits:
        card = dataset.card(split.name)
        file = replace(split.files[0], holds=card.numbers, fingerprint=card.fingerprint)
        splits.append(replace(split, files=(file,), paper=card.numbers))
    return replace(dataset.declaration, splits=tuple(splits), **({"features": (SHOWN,)} | changes))


@pytest.fixture()
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[Declaration], None]:
    """Makes a data set the only one that is known."""
    return lambda dataset: monkeypatch.setattr(doctor, "declarations", lambda: (dataset,))


@pytest.fixture()
def folder(release: Release, tmp_path: Path) -> Path:
    """A folder with DiDeMo's synthetic annotations."""
    shutil.copytree(release("didemo"), tmp_path / "didemo")
    return tmp_path


def features(path: Path, names: list[str], width: int = 4) -> None:
    """Features in the layout of 2D-TAN."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as store:
        for name in names:
            store[name] = np.ones((3, width), np.float32)


def video_names(folder: Path) -> list[str]:
    """All videos of the synthetic DiDeMo, under one of their file names."""
    dataset = open_dataset("didemo", folder)
    videos = [video for split in dataset.splits for video in dataset.annotations(split).videos]
    return [video.metadata["file_names"][0] for video in videos]


def test_all_that_is_there_and_right_is_fine(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo")))
    features(folder / "clips.h5", video_names(folder))
    report = examine(folder)
    assert report.exit_code == 0, "\n".join(report.lines())
    assert [f.state for f in of_kind(report, "annotations")] == ["ok", "ok", "ok"]
    assert all("the known release" in f.message for f in of_kind(report, "annotations"))
    [found] = of_kind(report, "features")
    assert (found.state, found.message) == ("ok", "has all 15")


def test_another_release_with_the_same_counts_is_no_error(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo"), features=()))
    path = folder / "didemo" / "val_data.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    report = examine(folder)
    assert report.exit_code == 0
    assert "another release than the known one" in of_kind(report, "annotations")[1].message


def test_a_file_that_lacks_queries_differs(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo"), features=()))
    path = folder / "didemo" / "val_data.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:-1]))
    report = examine(folder)
    assert report.exit_code == 1
    found = of_kind(report, "annotations")[1]
    assert found.state == "differs"
    assert "11 queries, expected 12" in found.message


def test_a_missing_split_is_said_with_how_it_is_obtained(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    dataset = agreeing(release("didemo"), features=())
    known(dataset)
    (folder / "didemo" / "train_data.json").unlink()
    report = examine(folder)
    assert report.exit_code == 1
    found = of_kind(report, "annotations")[0]
    assert (found.state, found.what, found.path, found.how) == (
        "missing",
        "train",
        "train_data.json",
        dataset.how,
    )
    assert f"  how to get what is missing: {dataset.how}" in list(report.lines())


def test_missing_features_are_said_and_those_that_are_not_needed_change_nothing(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo"), features=(SHOWN, replace(SHOWN, names=("x.h5",), needed=False))))
    report = examine(folder)
    assert [finding.state for finding in of_kind(report, "features")] == ["missing", "optional"]
    assert report.exit_code == 1
    known(agreeing(release("didemo"), features=(replace(SHOWN, needed=False),)))
    assert examine(folder).exit_code == 0


def test_features_without_some_videos_differ(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo")))
    features(folder / "clips.h5", video_names(folder)[1:])
    report = examine(folder)
    [found] = of_kind(report, "features")
    assert (found.state, found.message) == ("differs", "lacks 1 of 15, such as '7@N00_train'")
    assert report.exit_code == 1


def test_features_of_another_width_differ(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo")))
    features(folder / "clips.h5", video_names(folder), width=5)
    [found] = of_kind(examine(folder), "features")
    assert (found.state, found.message) == ("differs", "rows are 5 wide, published are 4")


def test_features_that_are_no_features_are_broken(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo")))
    (folder / "clips.h5").write_bytes(b"<html>quota exceeded</html>")
    report = examine(folder)
    [found] = of_kind(report, "features")
    assert found.state == "broken"
    assert str(folder / "clips.h5") in found.message
    assert report.exit_code == 2


def test_features_without_their_reader_are_unverified(
    folder: Path,
    release: Release,
    known: Callable[[Declaration], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from whenabouts.intake.files import ReaderMissing
    from whenabouts_bench.datasets import doctor

    def refuse(path: Path) -> None:
        raise ReaderMissing(path, "HDF5", "h5py")

    known(agreeing(release("didemo")))
    (folder / "clips.h5").touch()
    monkeypatch.setattr(doctor, "open_features", refuse)
    report = examine(folder)
    [found] = of_kind(report, "features")
    assert found.state == "unverified"
    assert "pip install 'whenabouts[research]'" in found.message
    assert report.exit_code == 1


def test_features_of_queries_are_held_against_the_queries(
    folder: Path, release: Release, known: Callable[[Declaration], None]
) -> None:
    known(agreeing(release("didemo"), features=(replace(SHOWN, of="query"),)))
    features(folder / "clips.h5", [f"qid{base + i}" for base in (0, 100, 200) for i in range(12)])
    [found] = of_kind(examine(folder), "features")
    assert (found.state, found.message) == ("ok", "has all 36")


@pytest.mark.parametrize("broken", ['[{"annotation_id": 5}]', '["annotation_id"'])
def test_a_malformed_file_is_named_once_and_the_rest_is_still_examined(
    folder: Path, release: Release, known: Callable[[Declaration], None], broken: str
) -> None:
    known(agreeing(release("didemo"), features=()))
    path = folder / "didemo" / "val_data.json"
    path.write_text(broken)
    report = examine(folder)
    assert report.exit_code == 2
    assert [finding.state for finding in of_kind(report, "annotations")] == ["ok", "broken", "ok"]
    assert str(path) in of_kind(report, "annotations")[1].message


def test_a_damaged_archive_is_broken_though_nobody_can_say_whose_it_is(folder: Path) -> None:
    (folder / "train.json.gz").write_bytes(b"\x1f\x8b not gzip")
    report = examine(folder)
    assert report.exit_code == 2
    [error] = report.unreadable
    assert "train.json.gz: the gzip file is" in error
    assert any(line.startswith("broken: ") for line in report.lines())


def test_an_empty_folder_has_nothing_and_every_data_set_is_named(tmp_path: Path) -> None:
    report = examine(tmp_path)
    assert report.exit_code == 1
    assert report.datasets == ()
    assert "tvr" in report.not_here
    assert "holds no annotation file" in "\n".join(report.lines())


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        examine(tmp_path / "nowhere")


def test_all_synthetic_releases_are_found_in_one_tree(releases: Path) -> None:
    report = examine(releases)
    assert report.not_here == ()
    assert report.unreadable == ()
    for dataset in report.datasets:
        states = {f.what: f.state for f in dataset.findings if f.kind == "annotations"}
        assert set(states) == {split.name for split in declaration_named(dataset.name).splits}
        assert set(states.values()) <= {"ok", "differs"}
    json.dumps(report.to_json(), allow_nan=False)


def test_side_files_are_missing_or_optional(release: Release, tmp_path: Path) -> None:
    shutil.copytree(release("tvr"), tmp_path / "tvr")
    [found] = of_kind(examine(tmp_path), "beside")
    assert found.state == "ok"
    (tmp_path / "tvr" / "data" / "tvr_video2dur_idx.json").unlink()
    [found] = of_kind(examine(tmp_path), "beside")
    assert (found.state, found.path, found.message) == ("missing", "tvr_video2dur_idx.json", "")
    (tmp_path / "tvr_video2dur_idx.json").write_text("{}")
    [found] = of_kind(examine(tmp_path), "beside")
    assert found.state == "missing"
    assert found.message.endswith("tvr_video2dur_idx.json is not read: it must lie beside the annotations")
