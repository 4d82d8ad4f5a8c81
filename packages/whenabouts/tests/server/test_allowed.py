"""The folders of --allow: only places in them are listed or accepted, however a client spells them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from whenabouts.server.allowed import MOST_ENTRIES, Allowed
from whenabouts.server.errors import ServerError
from whenabouts.types import UsageError


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder with videos, and links of all kinds."""
    films = tmp_path / "films"
    (films / "below").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "diary.mp4").write_bytes(b"d")
    for name in ("b.mp4", "A.vtt", "notes.txt", ".hidden.mp4", "below/c.mkv"):
        (films / name).write_bytes(b"1234")
    (films / "link.mp4").symlink_to(films / "b.mp4")
    (films / "out").symlink_to(tmp_path / "secret")
    (films / "out.mp4").symlink_to("../secret/diary.mp4")
    (films / "dangling.mp4").symlink_to("nowhere")
    os.mkfifo(films / "pipe.mp4")
    Path(os.fsdecode(os.fsencode(films) + b"/\xff.mp4")).write_bytes(b"1")
    return films


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ServerError) as caught:
        call()
    return caught.value.status, caught.value.code


def test_folders_and_what_can_be_indexed_are_listed(films: Path) -> None:
    allowed = Allowed([films])
    assert [(each.name, each.kind) for each in allowed.listed("").entries] == [("films", "folder")]
    listed = [(each.name, each.place, each.kind, each.bytes) for each in allowed.listed("films").entries]
    assert listed == [
        ("below", "films/below", "folder", 0),
        ("A.vtt", "films/A.vtt", "file", 4),
        ("b.mp4", "films/b.mp4", "file", 4),
        ("link.mp4", "films/link.mp4", "file", 4),
        ("out", "films/out", "outside", 0),
        ("out.mp4", "films/out.mp4", "outside", 0),
    ]
    assert [each.name for each in allowed.listed("films/below").entries] == ["c.mkv"]


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("films/out", 403),
        ("films/out/diary.mp4", 403),
        ("films/out.mp4", 403),
        ("films/../secret", 404),
        ("films/below/../../secret/diary.mp4", 404),
        ("films//below", 404),
        ("films/.", 404),
        ("films/", 404),
        ("/etc/passwd", 404),
        ("secret", 404),
        ("..", 404),
        ("films/none.mp4", 404),
        ("films/b.mp4\0", 404),
        ("films/b.mp4/below", 404),
        (f"films/{'a' * 300}", 404),
    ],
)
def test_what_lies_outside_is_refused(films: Path, place: str, status: int) -> None:
    allowed = Allowed([films])
    assert refused(lambda: allowed.path(place))[0] == status
    assert refused(lambda: allowed.listed(place))[0] == status


def test_a_file_is_no_folder(films: Path) -> None:
    allowed = Allowed([films])
    assert refused(lambda: allowed.listed("films/b.mp4")) == (400, "no_folder")


def test_a_place_is_where_it_really_lies_and_back(films: Path) -> None:
    allowed = Allowed([films])
    assert allowed.path("films/link.mp4") == str(films / "b.mp4")
    assert allowed.place(str(films / "below" / "c.mkv")) == "films/below/c.mkv"
    assert allowed.place(str(films)) == "films"
    assert allowed.place(f"{films}-other/x.mp4") is None
    assert allowed.place(os.fsdecode(os.fsencode(films) + b"/\xff.mp4")) is None


def test_a_link_from_one_allowed_folder_into_another_is_allowed(films: Path, tmp_path: Path) -> None:
    allowed = Allowed([films, tmp_path / "secret", films / "out"])
    assert list(allowed.roots) == ["films", "secret"]
    assert allowed.path("films/out/diary.mp4") == str(tmp_path / "secret" / "diary.mp4")


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "films").mkdir(parents=True)
    allowed = Allowed([tmp_path / "a" / "films", tmp_path / "b" / "films"])
    assert allowed.path("films (2)") == str(tmp_path / "b" / "films")


def test_an_allowed_folder_must_be_there(films: Path) -> None:
    for missing in (films / "none", films / "b.mp4", Path("~nobody-of-this-name/films")):
        with pytest.raises(UsageError, match="there is no such folder"):
            Allowed([missing])


def test_a_folder_that_turns_into_a_link_is_not_listed(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = Allowed([films])
    found = allowed.path

    def swapped(place: str) -> str:
        path = found(place)
        (films / "below" / "c.mkv").unlink()
        (films / "below").rmdir()
        (films / "below").symlink_to(tmp_path / "secret")
        return path

    monkeypatch.setattr(allowed, "path", swapped)
    assert refused(lambda: allowed.listed("films/below")) == (403, "not_allowed")


def test_a_large_folder_is_listed_in_part(tmp_path: Path) -> None:
    for number in range(MOST_ENTRIES + 5):
        (tmp_path / f"{number:05}.mp4").touch()
    listing = Allowed([tmp_path]).listed(tmp_path.name)
    assert (len(listing.entries), listing.left_out) == (MOST_ENTRIES, 5)
