"""Data sets are found in a folder by the names and beginnings of their files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench import datasets
from whenabouts_bench.datasets import dataset_names, declaration_named, open_dataset
from whenabouts_bench.datasets.folder import DatasetFolder

Release = Callable[[str], Path]


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'charades': no such data set; known: activitynet-captions, activ"):
        open_dataset("charades", tmp_path)


@pytest.mark.parametrize("name", dataset_names())
def test_a_name_may_have_underscores_and_be_in_any_case(name: str) -> None:
    """Papers write Charades-STA, programs charades_sta."""
    assert declaration_named(name.replace("-", "_")).name == name
    assert declaration_named(name.title()).name == name
    assert declaration_named(name.upper().replace("-", "_", 1)).name == name


def test_a_declared_name_may_have_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(declaration_named("tvr"), name="My_Talks")
    monkeypatch.setattr(datasets, "declarations", lambda: (mine,))
    assert declaration_named("My_Talks") == declaration_named("my-talks") == mine


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere: is not there; give the folder"):
        open_dataset("tvr", tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file: is a file; give the folder"):
        open_dataset("tvr", tmp_path / "file")
    with pytest.raises(UsageError, match=r"~nobody-of-this-name: is not there; give the folder"):
        open_dataset("tvr", "~nobody-of-this-name")


@pytest.mark.parametrize("name", dataset_names())
def test_a_folder_without_its_files_is_told_how_they_are_obtained(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        open_dataset(name, tmp_path)
    assert declaration_named(name).how in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_split_that_is_not_there_and_one_that_does_not_exist_are_told_apart(
    release: Release, tmp_path: Path
) -> None:
    shutil.copy(release("didemo") / "val_data.json", tmp_path)
    dataset = open_dataset("didemo", tmp_path)
    assert dataset.splits == ("val",)
    with pytest.raises(UsageError, match=r"split 'train' is not there \(looked for train_data.json"):
        dataset.annotations("train")
    with pytest.raises(UsageError, match=r"DiDeMo has no split 'dev'; it has train, val, test"):
        dataset.card("dev")


@pytest.mark.parametrize("name", dataset_names())
def test_each_data_set_is_told_from_all_others_in_one_tree(name: str, releases: Path) -> None:
    """Five of them ship a train.json, val.json or test.json."""
    dataset = open_dataset(name, releases)
    for split in dataset.splits:
        assert dataset.file(split).path.relative_to(releases).parts[0] == name


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train_data.json").write_text('[{"annotation_id": broken')
    assert open_dataset("didemo", tmp_path).splits == ("train",)


def test_a_copy_nearer_to_the_folder_is_preferred(release: Release, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    for place in (deep, tmp_path):
        shutil.copy(release("didemo") / "val_data.json", place)
    assert open_dataset("didemo", tmp_path).file("val").path.parent == tmp_path


def test_folders_are_looked_through_to_a_bounded_depth(release: Release, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"abcde")
    deep.mkdir(parents=True)
    shutil.copy(release("didemo") / "val_data.json", deep)
    assert open_dataset("didemo", tmp_path).splits == ("val",)
    too_deep = deep / "f"
    too_deep.mkdir()
    shutil.move(deep / "val_data.json", too_deep)
    with pytest.raises(UsageError, match="holds no annotations"):
        open_dataset("didemo", tmp_path)
    folder = DatasetFolder(tmp_path)
    assert folder.by_name
    assert not folder.complete


def test_looking_stops_after_so_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        (tmp_path / f"{i:02d}").touch()
    monkeypatch.setattr("whenabouts_bench.datasets.folder.MOST_ENTRIES", 10)
    folder = DatasetFolder(tmp_path)
    assert sorted(folder.by_name) == [f"{i:02d}" for i in range(10)]
    assert not folder.complete


def test_links_are_not_followed_outside_nor_in_circles(release: Release, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    shutil.copy(release("didemo") / "val_data.json", outside)
    shutil.copy(release("didemo") / "test_data.json", outside)
    (inside / "val_data.json").symlink_to(outside / "val_data.json")
    (inside / "more").symlink_to(outside)
    (inside / "circle").symlink_to(inside)
    (inside / "self.json").symlink_to(inside / "self.json")
    with pytest.raises(UsageError, match="holds no annotations"):
        open_dataset("didemo", inside)
    shutil.copy(release("didemo") / "train_data.json", inside / "kept.json")
    (inside / "train_data.json").symlink_to("kept.json")
    assert open_dataset("didemo", inside).splits == ("train",)


def test_a_file_with_the_right_name_and_another_content_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text('{"images": [], "licenses": []}')
    for name in ("tacos", "activitynet-captions"):
        with pytest.raises(UsageError, match="holds no annotations"):
            open_dataset(name, tmp_path)


def test_a_damaged_file_is_named_where_nothing_else_is_there(release: Release, tmp_path: Path) -> None:
    data = (release("activitynet-captions") / "val_1.json.gz").read_bytes()
    (tmp_path / "val_1.json.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=r"val_1.json.gz: the gzip file is cut off"):
        open_dataset("activitynet-captions", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_passed_over(release: Release, tmp_path: Path) -> None:
    shutil.copy(release("didemo") / "val_data.json", tmp_path)
    (tmp_path / "closed").mkdir(mode=0)
    assert open_dataset("didemo", tmp_path).splits == ("val",)


def test_hero_s_queries_stand_in_for_didemo_s_files_by_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {
        "vid_name": "7@N00_1.mov",
        "desc_id": 3,
        "desc": "a dog",
        "ts": [[5, 10], [5, 10], [0, 5], [0, 10]],
    }
    for name in ("didemo_train.db", "tvr_val.db"):
        (tmp_path / "txt_db" / name).mkdir(parents=True)
        path = tmp_path / "txt_db" / name / "query_data.jsonl"
        path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    dataset = open_dataset("didemo", tmp_path)
    assert dataset.splits == ("train",)
    train = dataset.annotations("train")
    assert (train.start.tolist(), train.end.tolist()) == ([5.0], [10.0])
    monkeypatch.chdir(tmp_path / "txt_db" / "didemo_train.db")
    assert open_dataset("didemo", ".").splits == ("train",)


def test_a_folder_below_the_home_folder_is_searched(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(release("tvr"), tmp_path / "tvr")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "tvr_val_release.jsonl" in DatasetFolder(Path("~/tvr")).by_name
