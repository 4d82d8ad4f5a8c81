"""Only files in served folders are sent, whatever path the ledger has for a video."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.conftest import Client, Open, error_of, id_of

from whenabouts.corpus import Corpus
from whenabouts.index.folders import indexed_folders, remember_folders
from whenabouts.index.store import Store
from whenabouts.server.errors import ServerError
from whenabouts.server.folders import ServedFolders
from whenabouts.types import UsageError

ROUTES = ("file", "thumbnail?at=1", "clip?start=0&end=1")


def _tampered(corpus: Path, path: Path) -> None:
    """Set the path, size and time of all videos in the ledger to those of `path`."""
    store, status = Store.open(corpus), path.stat()
    size, time = status.st_size, status.st_mtime_ns
    store.put_records(
        [replace(record, path=str(path), size=size, modified_ns=time) for record in store.videos()]
    )


def _refusals(client: Client, video: str) -> set[tuple[int, str, str | None]]:
    return {error_of(client.get(f"/api/videos/{video}/{route}")) for route in ROUTES}


@pytest.mark.slow
def test_a_tampered_ledger_serves_nothing_else(opened: Open, copied: tuple[Path, Path]) -> None:
    corpus, film = copied
    secret = film.parent.parent / "secret.mp4"
    shutil.copy2(film, secret)
    client = opened(corpus)
    video = id_of(client, "friday.mp4")
    assert client.get(f"/api/videos/{video}/file").status_code == 200
    _tampered(corpus, secret)
    assert _refusals(client, video) == {(403, "not_served", None)}
    assert error_of(client.get(f"/api/export?moments={video}@1-2"))[:2] == (403, "not_served")
    listed = client.get("/api/export?query=lighthouse&format=edl")
    assert listed.status_code in (404, 409)
    assert not client.json(f"/api/videos/{video}")["available"]
    # A new server serves the indexed folders, not the paths in the ledger.
    assert _refusals(opened(corpus), video) == {(403, "not_served", None)}
    assert opened(corpus, files=(secret.parent,)).get(f"/api/videos/{video}/file").status_code == 200


def test_a_folder_that_is_a_link_to_another_is_that_other(opened: Open, copied: tuple[Path, Path]) -> None:
    corpus, film = copied
    outside = film.parent.parent / "outside"
    outside.mkdir()
    shutil.move(film, outside / film.name)
    (film.parent / "inside").symlink_to(outside)
    _tampered(corpus, film.parent / "inside" / film.name)
    client = opened(corpus)
    video = id_of(client, "friday.mp4")
    assert _refusals(client, video) == {(403, "not_served", None)}


def test_a_video_replaced_by_a_link_is_not_served(opened: Open, copied: tuple[Path, Path]) -> None:
    corpus, film = copied
    client = opened(corpus)
    video = id_of(client, "friday.mp4")
    other = film.with_name("other.mp4")
    film.rename(other)
    film.symlink_to(other)
    assert _refusals(client, video) == {(409, "video_changed", None)}


def test_a_video_that_was_indexed_by_a_link_is_served(opened: Open, copied: tuple[Path, Path]) -> None:
    corpus, film = copied
    other = film.with_name("other.mp4")
    film.rename(other)
    film.symlink_to(other)
    store = Store.open(corpus)
    after = film.lstat().st_ctime + 1
    store.put_records([replace(record, indexed_at=after) for record in store.videos()])
    client = opened(corpus)
    assert client.get(f"/api/videos/{id_of(client, 'friday.mp4')}/file").status_code == 200


def test_a_file_swapped_while_it_is_read_makes_nothing(copied: tuple[Path, Path]) -> None:
    corpus, film = copied
    folders, record = ServedFolders.of(Corpus(corpus)), Store.open(corpus).videos()[0]
    other = film.with_name("other.mp4")
    shutil.copy2(film, other)
    with pytest.raises(ServerError, match="has changed"), folders.held(record):
        other.replace(film)


def test_what_was_indexed_is_remembered_and_what_lies_inside_is_not(copied: tuple[Path, Path]) -> None:
    corpus, film = copied
    store, folder = Store.open(corpus), film.parent
    (folder / "below").mkdir()
    (folder.parent / "link").symlink_to(folder)
    assert str(folder) in indexed_folders(store)
    before = store.version
    remember_folders(store, [folder / "below", folder.parent / "link", film])
    assert indexed_folders(store).count(str(folder)) == 1
    assert not any(place.startswith(f"{folder}/") for place in indexed_folders(store))
    assert store.version == before


def test_a_corpus_that_does_not_say_what_was_indexed(copied: tuple[Path, Path]) -> None:
    corpus, film = copied
    Store.open(corpus).forget_fact("indexed folders")
    assert ServedFolders.of(Corpus(corpus)).places == {os.path.realpath(film.parent)}


def test_a_named_place_may_lie_below_the_home_folder(
    copied: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, film = copied
    monkeypatch.setenv("HOME", str(film.parent.parent))
    served = ServedFolders.of(Corpus(corpus), [Path("~", film.parent.name)])
    assert served.places == {os.path.realpath(film.parent)}


def test_a_named_place_must_be_there(copied: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match=r"--files /nowhere/at/all: there is no such folder"):
        ServedFolders.of(Corpus(copied[0]), [Path("/nowhere/at/all")])
