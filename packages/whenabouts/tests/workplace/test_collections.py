"""Collections: changes are atomic, also by several processes, on a file that may come from a stranger."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from whenabouts.corpus import Corpus
from whenabouts.index.records import StoreError
from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts.workplace.collections import MOST_ITEMS, Collections, NameTaken, NoSuchCollection
from whenabouts.workplace.database import _SCHEMAS, FILE, JOBS_VERSION, Database
from whenabouts.workplace.searches import SavedSearches


@pytest.fixture
def collections(tmp_path: Path) -> Collections:
    return Collections(Database(str(tmp_path)))


def moments(count: int) -> list[Moment]:
    return [Moment(f"video-{at}", float(at), at + 1.5) for at in range(count)]


def videos(collections: Collections, name: str = "film") -> list[str]:
    return [item.video_id for item in collections.get(name).items]


def test_nothing_is_written_until_something_is_kept(collections: Collections, tmp_path: Path) -> None:
    assert collections.listed() == []
    with pytest.raises(NoSuchCollection, match="there are none yet"):
        collections.get("film")
    assert list(tmp_path.iterdir()) == []


def test_moments_are_added_ordered_trimmed_noted_and_taken_out(collections: Collections) -> None:
    collections.add("film", moments(3), query="a flower", create=True)
    first, second, third = collections.get("film").items
    assert (first.query, second.moment) == ("a flower", Moment("video-1", 1.0, 2.5))
    collections.move("film", third.id, first.id)
    assert videos(collections) == ["video-2", "video-0", "video-1"]
    collections.move("film", third.id, None)
    assert videos(collections) == ["video-0", "video-1", "video-2"]
    collections.move("film", first.id, first.id)
    assert videos(collections) == ["video-0", "video-1", "video-2"]
    assert [each.id for each in collections.reorder("film", [3, 1, 2]).items] == [
        third.id,
        first.id,
        second.id,
    ]
    collections.reorder("film", [2, 3, 1])
    assert videos(collections) == ["video-0", "video-1", "video-2"]
    changed = collections.change("film", second.id, start=1.25, note="shorter", tags=["b", " a ", "b"])
    assert changed.items[1].moment == Moment("video-1", 1.25, 2.5)
    assert (changed.items[1].note, changed.items[1].tags) == ("shorter", ("b", "a"))
    assert collections.remove("film", [first.id]).seconds == pytest.approx(1.25 + 1.5)
    assert videos(collections) == ["video-1", "video-2"]
    listed = collections.listed()
    assert [(each.name, each.count) for each in listed] == [("film", 2)]
    assert listed[0].seconds == pytest.approx(2.75)


def test_a_moment_is_moved_or_copied_with_all_it_has(collections: Collections, tmp_path: Path) -> None:
    hashed = Collections(Database(str(tmp_path)), content_of=lambda video_id: "first")
    kept = hashed.add("film", moments(3), query="a flower", create=True).items[1]
    other = hashed.add("other", [Moment("last", 0.0, 1.0)], create=True)
    kept = hashed.change("film", kept.id, start=1.25, note="shorter", tags=["b"]).items[1]
    assert collections.move("film", kept.id, None, to="other").name == "film"
    assert videos(collections) == ["video-0", "video-2"]
    assert collections.get("other").items[1] == kept
    # Back to its place.
    collections.move("other", kept.id, collections.get("film").items[1].id, to="film")
    assert videos(collections) == ["video-0", "video-1", "video-2"]
    collections.move("film", kept.id, other.items[0].id, to="other", keep=True)
    copied = collections.get("other").items[0]
    assert copied.id != kept.id
    assert dataclasses.replace(copied, id=kept.id) == kept == collections.get("film").items[1]
    collections.move("film", kept.id, kept.id, keep=True)
    assert videos(collections) == ["video-0", "video-1", "video-1", "video-2"]
    collections.add("film", [Moment("added", 0.0, 1.0)])
    assert videos(collections)[-1] == "added"


def test_a_collection_is_called_by_name_or_id_renamed_and_deleted(collections: Collections) -> None:
    film = collections.create(" film ", "for Monday")
    other = collections.create("other")
    assert collections.get(film.id).name == "film"
    with pytest.raises(NameTaken):
        collections.create("film")
    with pytest.raises(NameTaken):
        collections.describe("other", new_name="film")
    assert collections.describe(other.id, new_name="second", note="n").note == "n"
    with pytest.raises(NoSuchCollection, match="choose from 'second', 'film'"):
        collections.get("other")
    collections.add("second", moments(2))
    collections.delete("second")
    assert [each.name for each in collections.listed()] == ["film"]
    with pytest.raises(NoSuchCollection):
        collections.delete("second")


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "two\nlines", "\x1b[31m"])
def test_what_is_no_name_is_refused(collections: Collections, name: str) -> None:
    with pytest.raises(UsageError, match="is not a name"):
        collections.create(name)


def test_no_name_hides_another_collection_behind_its_id(collections: Collections, tmp_path: Path) -> None:
    first = collections.create("film")
    with pytest.raises(UsageError, match=f"another collection has the name or id '{first.id}'"):
        collections.create(first.id)
    with pytest.raises(UsageError, match="another collection has the name or id"):
        collections.describe(collections.create("other").id, new_name=first.id)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as earlier, earlier:
        earlier.execute("UPDATE collections SET name = ? WHERE name = 'other'", (first.id,))
    assert collections.get(first.id).id == first.id


def test_a_change_that_fails_leaves_everything_as_it_was(collections: Collections) -> None:
    collections.add("film", moments(3), create=True)
    collections.add("full", moments(MOST_ITEMS), create=True)
    collections.create("empty")
    item = collections.get("film").items[0]
    before = collections.get("film")
    changes: tuple[Callable[[], object], ...] = (
        lambda: collections.change("film", item.id, start=9.0),
        lambda: collections.change("film", item.id, note="x" * 2_001),
        lambda: collections.change("film", item.id, tags=["x"] * 1 + [str(at) for at in range(20)]),
        lambda: collections.remove("film", [item.id, "nobody"]),
        lambda: collections.move("film", item.id, "nobody"),
        lambda: collections.move("film", item.id, None, to="nowhere"),
        lambda: collections.move("film", item.id, item.id, to="empty"),
        lambda: collections.move("film", item.id, None, to="full", keep=True),
        lambda: collections.move("film", item.id, None, to="full"),
        lambda: collections.reorder("film", [1, 1]),
        lambda: collections.add("film", moments(MOST_ITEMS)),
    )
    for fails in changes:
        with pytest.raises(UsageError):
            fails()
        assert collections.get("film") == before


def test_a_comma_separates_tags(collections: Collections, tmp_path: Path) -> None:
    item = collections.add("film", moments(1), create=True).items[0].id
    with pytest.raises(UsageError, match="'Leeds, Barnbow' is not a tag, because commas separate tags"):
        collections.change("film", item, tags=["1944", "Leeds, Barnbow"])
    assert collections.get("film").items[0].tags == ()
    as_a_stranger(tmp_path, """UPDATE items SET tags = '["1944", "Leeds, Barnbow,"]'""")
    (kept,) = collections.get("film").items
    assert kept.tags == ("1944", "Leeds", "Barnbow")
    assert collections.change("film", item, tags=kept.tags, seen={"tags": list(kept.tags)}).items == (kept,)


def test_answers_are_added_and_what_is_no_moment_is_refused(collections: Collections) -> None:
    collections.create("film")
    scored = ScoredMoment(Moment("a", 1.0, 2.0), 0.5)
    assert [item.moment for item in collections.add("film", [scored]).items] == [scored.moment]
    with pytest.raises(UsageError, match=r"'a@1-2' is not a moment; Corpus\.moment reads"):
        collections.add("film", ["a@1-2"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="shorter than a millisecond"):
        collections.add("film", [Moment("a", 0.1, 0.1000001)])
    with pytest.raises(UsageError, match=r"'\.\.' is not a name"):
        collections.create("..")


def test_the_file_of_a_moment_is_remembered_until_it_is_trimmed(tmp_path: Path) -> None:
    contents = {"a": "before"}
    collections = Collections(Database(str(tmp_path)), content_of=contents.__getitem__)
    (item,) = collections.add("film", [Moment("a", 1.0, 2.0)], create=True).items
    contents["a"] = "after"
    assert collections.change("film", item.id, note="good").items[0].content == "before"
    assert collections.change("film", item.id, end=3.0).items[0].content == "after"
    assert collections.remove("film", [item.id]).items == ()


def test_a_file_of_an_earlier_version_is_read_and_changed(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as connection:
        for statement in chain(*_SCHEMAS[:JOBS_VERSION]):
            connection.execute(statement)
        connection.execute("INSERT INTO collections VALUES ('0123456789ab', 'film', '', 1.0)")
        connection.execute(
            "INSERT INTO items VALUES ('0123456789ac', '0123456789ab', 0, 'a', 1, 2, '', '[]', '')"
        )
        connection.execute(f"PRAGMA user_version = {JOBS_VERSION}")
    collections = Collections(Database(str(tmp_path)), content_of=lambda video_id: "now")
    assert [item.content for item in collections.get("film").items] == [""]
    assert collections.listed()[0].count == 1
    added = collections.add("film", [Moment("a", 3.0, 4.0)])
    assert [item.content for item in added.items] == ["", "now"]


def test_many_people_add_at_once_and_nothing_is_lost(collections: Collections, tmp_path: Path) -> None:
    collections.create("film")
    faults: list[Exception] = []

    def add(who: int) -> None:
        mine = Collections(Database(str(tmp_path)))
        try:
            for at in range(20):
                mine.add("film", [Moment(f"video-{who}-{at}", 0.0, 1.0)])
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=add, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(set(videos(collections))) == 80
    assert [item.video_id for item in collections.get("film").items if "-0-" in item.video_id] == [
        f"video-0-{at}" for at in range(20)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before the tables", "in a change that is half on the disk"])
def test_a_writer_that_is_killed_leaves_the_state_of_before(
    collections: Collections, tmp_path: Path, where: str
) -> None:
    change = "pass"
    if where != "before the tables":
        collections.add("film", moments(5000), create=True)
        # With a cache this small, most of the change is written before it is committed.
        change = "connection.execute('PRAGMA cache_size = 1'); connection.execute('DELETE FROM items')"
    before = collections.listed()
    script = (
        "import os, signal, sys\n"
        "from whenabouts.workplace.database import Database\n"
        "with Database(sys.argv[1]).changing() as connection:\n"
        f"    {change}\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == -9
    assert (tmp_path / f"{FILE}-journal").exists()
    assert collections.listed() == before
    collections.create("next")
    assert len(collections.listed()) == len(before) + 1


def as_a_stranger(folder: Path, statement: str, *values: object) -> None:
    """Change the file of collections as a stranger could."""
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.execute(statement, values)


def only_delete_helps(collections: Collections, problem: str) -> None:
    """Check that "film" is listed with a problem, which all other uses raise, until it is deleted."""
    invalid, valid = collections.listed()
    assert (invalid.name, invalid.count, invalid.seconds) == ("film", 2, 0.0)
    assert problem in invalid.problem and "'film'" in invalid.problem and "delete it" in invalid.problem
    assert (valid.name, valid.count, valid.problem) == ("other", 3, "")
    with pytest.raises(StoreError, match=re.escape(invalid.problem)):
        collections.get("film")
    collections.delete("film")
    assert collections.listed() == [valid]


@pytest.fixture
def two(collections: Collections) -> Collections:
    """Two collections, of which the second was changed last."""
    collections.add("other", moments(3), create=True)
    collections.add("film", moments(2), create=True)
    return collections


@pytest.mark.parametrize(
    "tags",
    ["{", "7", "[" * 5000, r'["\ud83d"]'],
    ids=["no JSON", "no list", "too deep", "half of a character"],
)
def test_an_item_of_a_stranger_is_refused_and_its_collection_can_be_deleted(
    two: Collections, tmp_path: Path, tags: str
) -> None:
    film = two.get("film").id
    as_a_stranger(tmp_path, "UPDATE items SET tags = ? WHERE place = 1 AND collection = ?", tags, film)
    only_delete_helps(two, "contains an invalid moment")


@pytest.mark.parametrize("end", [1e300, 1e308, math.inf, -1.0, 31 * 86_400 + 0.5])
def test_times_that_no_recording_has_are_refused_and_never_shown(
    two: Collections, tmp_path: Path, end: float
) -> None:
    before = two.get("film")
    with pytest.raises(UsageError):
        two.change("film", before.items[0].id, end=end)
    with pytest.raises(UsageError):
        two.add("film", [Moment("a", 0.0, end)])
    assert two.get("film") == before
    as_a_stranger(tmp_path, "UPDATE items SET end = ? WHERE collection = ?", end, before.id)
    only_delete_helps(two, "contains an invalid moment (")


@pytest.mark.parametrize("id", ["../x", "", "A" * 12, b"\xff"])
def test_ids_of_a_stranger_are_refused(two: Collections, tmp_path: Path, id: str | bytes) -> None:
    film = two.get("film").id
    as_a_stranger(tmp_path, "UPDATE items SET collection = CAST(? AS TEXT) WHERE collection = ?", id, film)
    as_a_stranger(tmp_path, "UPDATE collections SET id = CAST(? AS TEXT) WHERE id = ?", id, film)
    invalid, valid = two.listed()
    assert "'film' has an invalid id; delete it" in invalid.problem
    with pytest.raises(StoreError, match="invalid id"):
        two.get("film")
    with pytest.raises(StoreError, match="invalid id"):
        two.add("film", moments(1))
    two.delete("film")
    assert two.listed() == [valid]


def test_text_of_a_stranger_that_is_not_utf8_hides_nothing(two: Collections, tmp_path: Path) -> None:
    film = two.get("film").id
    as_a_stranger(tmp_path, "UPDATE items SET note = CAST(x'61ff' AS TEXT) WHERE collection = ?", film)
    as_a_stranger(tmp_path, "UPDATE collections SET name = CAST(x'62ff' AS TEXT) WHERE id = ?", film)
    assert [each.name for each in two.listed()] == ["b\\xff", "other"]
    assert {item.note for item in two.get("b\\xff").items} == {"a\\xff"}
    two.delete("b\\xff")
    assert [each.name for each in two.listed()] == ["other"]


def test_a_note_or_a_query_with_bytes_that_are_not_utf8_is_refused_in_words(two: Collections) -> None:
    film = two.get("film")
    changes: tuple[Callable[[], object], ...] = (
        lambda: two.describe("film", note="caf\udce9"),
        lambda: two.change("film", film.items[0].id, note="caf\udce9"),
        lambda: two.add("film", moments(1), query="caf\udce9"),
    )
    for change in changes:
        with pytest.raises(UsageError, match=r"caf.' holds bytes that are not UTF-8"):
            change()
    assert two.get("film") == film


@pytest.mark.parametrize("question", ["{", "[]", '{"q": 7}', r'{"q": "\ud83d"}'])
def test_a_search_of_a_stranger_is_refused_and_can_be_deleted(tmp_path: Path, question: str) -> None:
    searches = SavedSearches(Database(str(tmp_path)))
    searches.save("rabbits", {"query": "rabbits"}, [])
    searches.save("sledges", {"query": "sledges"}, [])
    as_a_stranger(tmp_path, "UPDATE searches SET question = ? WHERE name = 'rabbits'", question)
    assert [(each.name, each.problem) for each in searches.listed()] == [
        ("rabbits", "the saved search 'rabbits' is invalid; delete it"),
        ("sledges", ""),
    ]
    assert searches.get("sledges").question == {"query": "sledges"}
    with pytest.raises(StoreError, match="'rabbits' is invalid; delete it"):
        searches.get("rabbits")
    searches.delete("rabbits")
    assert [each.name for each in searches.listed()] == ["sledges"]


def test_files_of_a_stranger_are_refused_with_their_name(collections: Collections, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / FILE).symlink_to(victim)
    for use in (collections.listed, lambda: collections.create("film")):
        with pytest.raises(StoreError, match="not a regular file"):
            use()
    assert victim.read_bytes() == b"mine"
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    with pytest.raises(StoreError, match="damaged"):
        collections.listed()
    (tmp_path / FILE).unlink()
    collections.create("film")
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("CREATE TRIGGER bad AFTER INSERT ON items BEGIN DELETE FROM collections; END")
    connection.close()
    with pytest.raises(StoreError, match="not a file of collections"):
        collections.listed()


def test_a_newer_file_and_a_folder_without_rights_say_so(collections: Collections, tmp_path: Path) -> None:
    collections.create("film")
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="newer version"):
        collections.listed()
    with pytest.raises(StoreError, match="cannot be used"):
        Collections(Database("/proc/self")).create("film")


def test_object_stores_and_corpora_side_by_side_say_that_they_keep_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="object store"):
        Database("s3://bucket/corpus")
    with pytest.raises(UsageError, match="side by side"):
        Database(f"{tmp_path}/a, {tmp_path}/b")


def test_an_index_run_does_not_hold_collections_up(samples_corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(samples_corpus, tmp_path / "c.corpus")
    corpus = Corpus(tmp_path / "c.corpus")
    with corpus.writing():
        added = Corpus(tmp_path / "c.corpus")
        added.collections.add("film", [added.moment("friday@1-3")], create=True)
    reopened = Corpus(tmp_path / "c.corpus")
    assert reopened.collections.get("film").seconds == 2.0
    items = reopened.collections.add("film", [Moment("nobody-00000000", 0.0, 1.0)]).items
    moments_, missing = reopened.moments_of(items)
    assert [moment.start for moment in moments_] == [1.0]
    assert "How are you?" in moments_[0].text
    assert missing == ["nobody-00000000 is no longer in the corpus, so its moment is left out"]


@pytest.mark.parametrize(("question", "moment"), [("\udcff", "a@0-1"), ("frogs", "\udcff@0-1")])
def test_a_saved_search_of_half_a_character_is_refused(tmp_path: Path, question: str, moment: str) -> None:
    searches = SavedSearches(Database(str(tmp_path)))
    with pytest.raises(UsageError, match="not UTF-8"):
        searches.save("frogs", {"query": question}, [moment])
    assert searches.listed() == []


def test_saved_searches_are_kept_replaced_and_deleted(tmp_path: Path) -> None:
    searches = SavedSearches(Database(str(tmp_path)))
    assert searches.listed() == []
    searches.save("rabbits", {"query": "rabbits"}, ["a@0-1"])
    searches.save("rabbits", {"query": "hares"}, ["a@0-1", "b@2-3"])
    kept = searches.get("rabbits")
    assert dict(kept.question) == {"query": "hares"}
    assert sorted(kept.moments) == ["a@0-1", "b@2-3"]
    with pytest.raises(UsageError, match="no saved search"):
        searches.delete("hares")
    searches.delete("rabbits")
    assert searches.listed() == []
    with pytest.raises(UsageError, match="at most"):
        searches.save("long", {"query": "x" * 20_001}, [])
