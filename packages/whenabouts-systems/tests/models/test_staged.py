"""Staged runs: what `system.json` says, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.plugin_system import declared_system

from whenabouts.intake.files import FormatError
from whenabouts_systems.models.staged import (
    Stages,
    fingerprint_of,
    is_staged,
    localizer_of,
    read_stages,
    retriever_of,
    stages_of,
    write_stages,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two stages."""
    place = tmp_path / "run"
    for name in ("first", "second"):
        (place / name).mkdir(parents=True)
    return place


def test_what_is_written_is_read(folder: Path) -> None:
    path = write_stages(folder, retriever="first", localizer="second")
    assert json.loads(path.read_text()) == {"format": 1, "retriever": "first", "localizer": "second"}
    assert read_stages(folder) == Stages(folder / "first", folder / "second")
    assert stages_of(str(folder)) == (folder / "first", folder / "second")
    assert retriever_of(folder) == folder / "first"


def test_a_last_stage_may_stand_alone(folder: Path) -> None:
    write_stages(folder, localizer="second")
    assert read_stages(folder) == Stages(None, folder / "second")
    assert retriever_of(folder) == folder / "second"


def test_the_localizer_is_found_where_the_retriever_is_gone(folder: Path) -> None:
    write_stages(folder, retriever="first", localizer="second")
    (folder / "first").rmdir()
    assert localizer_of(folder) == folder / "second"
    assert localizer_of("owner/name") == "owner/name"
    with pytest.raises(FormatError, match=r"no such folder: '?first"):
        read_stages(folder)


def test_any_other_place_is_a_localizer_by_itself(folder: Path) -> None:
    assert not is_staged(folder)
    assert stages_of(folder / "first") == (None, folder / "first")
    assert stages_of("owner/name") == (None, "owner/name")
    assert retriever_of("owner/name") == "owner/name"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../run/first", "first/../../else", "/first", "a\\b", "C:first", "first\n", "\0"],
)
@pytest.mark.parametrize("key", ["retriever", "localizer"])
def test_a_name_that_leaves_the_folder_is_refused(folder: Path, name: str, key: str) -> None:
    told = {"format": 1, "retriever": "first", "localizer": "second", key: name}
    (folder / "system.json").write_text(json.dumps(told))
    with pytest.raises(FormatError, match=rf"system\.json: {key}: names no subfolder"):
        read_stages(folder)
    names = {"retriever": "first", "localizer": "second", key: name}
    (folder / "system.json").unlink()
    with pytest.raises(FormatError, match=f"{key}: names no subfolder"):
        write_stages(folder, **names)
    assert not is_staged(folder)


@pytest.mark.parametrize("value", [None, 3, ["second"], {"place": "second"}])
def test_a_localizer_is_a_name(folder: Path, value: Any) -> None:
    (folder / "system.json").write_text(json.dumps({"format": 1, "localizer": value}))
    with pytest.raises(FormatError, match="localizer: names no subfolder"):
        read_stages(folder)


def test_a_link_that_leaves_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "system.json").write_text(json.dumps({"format": 1, "localizer": "linked"}))
    with pytest.raises(FormatError, match="a link that leads out of this folder: 'linked'"):
        read_stages(folder)


def test_a_stage_that_is_not_there_is_named(folder: Path) -> None:
    write_stages(folder, retriever="first", localizer="second")
    (folder / "first").rmdir()
    with pytest.raises(FormatError, match=r"system\.json: retriever: there is no such folder: 'first'"):
        read_stages(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "the settings of another program"),
        ("{}", "the settings of another program"),
        ('{"format": 2, "localizer": "second"}', "is of a form that .* does not read: 2; accepted: 1"),
        ('{"format": true, "localizer": "second"}', "does not read"),
        ('{"format": 1, "localizer": "second", "third": "first"}', "unknown key 'third'"),
        ('{"format": 1, "localizer": "second", "localizer": "first"}', "the key comes twice"),
        ('{"format": 1', "is not JSON"),
    ],
)
def test_what_is_no_such_file_is_refused_in_one_line(folder: Path, content: str, said: str) -> None:
    (folder / "system.json").write_text(content)
    with pytest.raises(FormatError, match=said) as caught:
        read_stages(folder)
    assert "system.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_file_is_named(folder: Path) -> None:
    with pytest.raises(FormatError, match=r"system\.json: cannot be read"):
        read_stages(folder)


def test_a_pair_has_a_fingerprint_of_its_own() -> None:
    names = [fingerprint_of(*pair) for pair in (("a", None), ("a", "b"), ("b", "a"), ("a", "c"))]
    assert names[0] == "a"
    assert len(set(names)) == 4


@pytest.mark.parametrize(
    ("retriever", "localizer", "said"),
    [
        ("conquer", "ms_sl", r"the wrong way round: first chooses no videos and second finds no moments"),
        (
            "conquer",
            "conquer",
            r"names a system that chooses no videos: 'first'; accepted: the folder of a r",
        ),
        ("conquer", "xml", r"retriever: names a system that chooses no videos: 'first'"),
        ("ms_sl", "gmmformer", r"localizer: names a system that finds no moments: 'second'"),
    ],
)
def test_a_system_that_cannot_do_what_it_is_named_for_is_told(
    folder: Path, retriever: str, localizer: str, said: str
) -> None:
    for name, system in (("first", retriever), ("second", localizer)):
        (folder / name / "config.json").write_text(json.dumps({"system": system}))
    write_stages(folder, retriever="first", localizer="second")
    with pytest.raises(FormatError, match=f"system.json: .*{said}"):
        read_stages(folder)


def test_a_system_of_a_plugin_may_be_a_stage(folder: Path) -> None:
    """It is no file of `models/`; what it can do is still checked."""
    (folder / "first" / "config.json").write_text('{"system": "ms_sl"}')
    (folder / "second" / "config.json").write_text('{"system": "finds_spans"}')
    with declared_system("finds_spans", "whenabouts_systems.models.moment_detr"):
        write_stages(folder, retriever="first", localizer="second")
        assert read_stages(folder).localizer == folder / "second"
        write_stages(folder, retriever="second", localizer="second")
        with pytest.raises(FormatError, match="names a system that chooses no videos: 'second'"):
            read_stages(folder)


@pytest.mark.parametrize("config", ["{", "[]", '{"system": 3}', '{"system": "of another program"}'])
def test_a_system_that_is_not_known_is_left_to_who_opens_it(folder: Path, config: str) -> None:
    (folder / "first" / "config.json").write_text(config)
    (folder / "second" / "config.json").write_text('{"system": "conquer"}')
    write_stages(folder, retriever="first", localizer="second")
    assert read_stages(folder).localizer == folder / "second"
