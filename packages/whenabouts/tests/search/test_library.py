"""The library: which videos a filter leaves, in which order, and what they share."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.corpus import Corpus
from whenabouts.index.filters import make_filter, recorded
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord, natural_key
from whenabouts.index.store import Store
from whenabouts.search.coverage import streams_with_clips
from whenabouts.search.library import Library, Sort, corpus_names, narrowed, remedy_of
from whenabouts.types import UsageError
from whenabouts.video.files import folded_name

RECORDS: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("talk_10", "talks/2020/talk 10.mp4", {"language": "de", "room": "Hall"}, {"duration": 60.0}),
    ("talk_2", "talks/2020/talk 2.mp4", {"language": "en", "room": "hall"}, {"duration": 90.0}),
    ("talk_1", "talks/2021/a/talk 1.mp4", {"language": "en", "recorded": "1999-05-01"}, {"duration": None}),
    ("walk", "talks/2021/b[1]/walk.mp4", {"room": "lab", "tags": ["outside", "long"]}, {"damage": "cut off"}),
    ("gone", "talks/2021/gone.mp4", {"room": "lab"}, {"state": "gone", "words": ""}),
    ("broken", "talks/broken.mp4", {}, {"state": "failed", "streams": {}, "error": "no video"}),
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A corpus of five videos and of a file that could not be read."""
    store = Store.open(tmp_path / "one.corpus", create=True)
    put(store, [record_of(tmp_path, number, *row) for number, row in enumerate(RECORDS)])
    return store


def record_of(
    base: Path, number: int, name: str, path: str, metadata: dict[str, Any], more: dict[str, Any]
) -> VideoRecord:
    place = base / path
    if more.get("state") not in ("gone", "failed"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    facts = {"words": "file", "streams": {"subtitle": "a"}, "indexed_at": 100.0 - number, **more}
    return VideoRecord(name, str(place), modified_ns=(1 + number) * 10**18, metadata=metadata, **facts)


def put(store: Store, records: Sequence[VideoRecord]) -> None:
    store.add_stream(StreamInfo("subtitle", "words", "a", 0))
    words = {"subtitle": ClipColumns(np.zeros(1), np.ones(1), text=["a line"])}
    store.put_videos((record, words if record.words and record.streams else {}) for record in records)


def listed(store: Store, *where: str, sort: Sort = "id", descending: bool = False, **more: str) -> list[str]:
    library = Library.of(store)
    rows = library.rows(make_filter((), where=where, **more), sort, descending=descending)
    return library.ids_of(rows.tolist())


def facet(store: Store, key: str, *where: str) -> dict[str, int]:
    facets = Library.of(store).facets(make_filter((), where=where))
    return {each.title: each.count for facet in facets if facet.key == key for each in facet.values}


@pytest.mark.parametrize(
    ("sort", "descending", "order"),
    [
        ("id", False, ["gone", "talk_1", "talk_2", "talk_10", "walk"]),
        ("name", False, ["gone", "talk_1", "talk_2", "talk_10", "walk"]),
        ("name", True, ["walk", "talk_10", "talk_2", "talk_1", "gone"]),
        ("date", False, ["talk_1", "talk_10", "talk_2", "walk", "gone"]),
        ("length", False, ["talk_10", "talk_2", "gone", "talk_1", "walk"]),
        ("length", True, ["talk_2", "talk_10", "gone", "talk_1", "walk"]),
        ("added", True, ["talk_10", "talk_2", "talk_1", "walk", "gone"]),
    ],
)
def test_videos_are_sorted_and_what_has_no_length_comes_last(
    store: Store, sort: Sort, descending: bool, order: list[str]
) -> None:
    assert listed(store, sort=sort, descending=descending) == order
    with pytest.raises(UsageError, match="sort is 'size'; sort by id, name, date, length, added"):
        listed(store, sort="size")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "fitting"),
    [
        (["language=en"], ["talk_1", "talk_2"]),
        (["language!=en"], ["gone", "talk_10", "walk"]),
        (["room=HALL"], ["talk_2", "talk_10"]),
        (["tags=outside"], ["walk"]),
        (["name=talk*", "duration>=60"], ["talk_2", "talk_10"]),
        (["video.state=missing"], ["gone"]),
        (["video.state=damaged"], ["walk"]),
        (["video.state=unreadable"], ["broken"]),
        (["video.stream=subtitle"], ["talk_1", "talk_2", "talk_10", "walk"]),
        (["video.stream!=subtitle"], ["gone"]),
        (["nothing=here"], []),
    ],
)
def test_conditions_narrow_the_list(store: Store, where: list[str], fitting: list[str]) -> None:
    assert listed(store, *where) == fitting


def test_a_folder_holds_all_below_it_and_nothing_beside_it(store: Store, tmp_path: Path) -> None:
    talks = tmp_path / "talks"
    assert listed(store, f"video.folder={talks}/2021/") == ["gone", "talk_1", "walk"]
    assert listed(store, f"video.folder={talks}/2021/b[1]") == ["walk"]
    assert listed(store, f"video.folder={talks}/202") == []
    assert listed(store, f"video.folder!={talks}/2021") == ["talk_2", "talk_10"]
    assert listed(store, f"video.folder={tmp_path}/TALKS/*1") == ["gone", "talk_1", "walk"]
    assert listed(store, "video.folder=*/2020") == ["talk_2", "talk_10"]
    assert listed(store, "video.folder=*/2020/") == ["talk_2", "talk_10"]
    assert listed(store, "video.folder=*/b[1]") == ["walk"]
    assert listed(store, f"video.folder={talks}/202?") == []
    assert len(listed(store, "video.folder=*")) == 5
    with pytest.raises(UsageError, match=r"video\.folder>a: folders have no order; write ="):
        listed(store, "video.folder>a")


def test_a_state_that_does_not_exist_is_refused_with_those_that_do(store: Store) -> None:
    with pytest.raises(UsageError, match="the states are fine, damaged, missing, unreadable"):
        listed(store, "video.state=done")
    assert listed(store, "video.state=MISS*") == ["gone"]


def test_a_name_that_is_not_unicode_is_whole(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "old.corpus", create=True)
    put(store, [VideoRecord("old", os.fsdecode(b"/no/caf\xe9.mp4"), words="file", streams={"subtitle": "a"})])
    assert listed(store, "name=caf*") == ["old"] == make_filter(where=["name=caf*"]).choose(store.videos())
    assert listed(store, "name=xe9*") == []


def test_a_filter_is_resolved_in_the_library_of_one_version(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "later.corpus", create=True)
    versions = map(Library.of, (store, other))
    chosen = narrowed(make_filter(where=["video.state=damaged"]), lambda: next(versions))
    assert chosen.within == ("walk",)


def test_dates_narrow_as_they_do_in_a_search(store: Store) -> None:
    assert listed(store, before="2000-01-01") == ["talk_1"]
    assert "talk_1" not in listed(store, after="2000-01-01")


def test_facets_count_what_is_there(store: Store) -> None:
    assert facet(store, "language") == {"English": 2, "German": 1}
    # A condition takes letter case as the same, and so does the count.
    assert facet(store, "room") == {"Hall": 2, "lab": 2}
    assert facet(store, "video.stream") == {"words": 4}
    states = facet(store, "video.state")
    assert states == {
        "whole": 3,
        "damaged": 1,
        "file missing": 1,
        "could not be read": 1,
    }
    assert facet(store, "tags") == {}, "lists of metadata are not counted"
    assert facet(store, "video.corpus") == {}, "there is one"


def test_tags_of_the_writing_program_are_stored_but_not_counted(store: Store) -> None:
    tags = {"software": "Lavf59.27.100", "major_brand": "isom", "toolkit_version": "1", "product_name": "PXW"}
    store.put_records([VideoRecord("avi", "/no/a.avi", streams={"subtitle": "a"}, metadata=tags)])
    assert facet(store, "product_name") == {"PXW": 1}
    assert [facet(store, key) for key in ("software", "major_brand", "toolkit_version")] == [{}, {}, {}]
    assert listed(store, "software=Lavf*") == ["avi"]


def test_a_stream_that_found_nothing_in_a_video_is_not_counted(store: Store) -> None:
    heard = VideoRecord("hum", "/no/hum.mp4", words="speech:small", streams={"subtitle": "a"})
    silent = VideoRecord("mute", "/no/mute.mp4", words="no sound", streams={"subtitle": "a"})
    store.put_videos((record, {}) for record in (heard, silent))
    assert facet(store, "video.stream") == {"words": 4}
    assert not {"hum", "mute"} & {*listed(store, "video.stream=subtitle")}
    assert streams_with_clips(store, [heard, silent]) == {"hum": [], "mute": []}
    talk = next(record for record in store.ledger().records if record.video_id == "talk_1")
    assert streams_with_clips(store, [talk, *600 * [heard]]) == {"talk_1": ["subtitle"], "hum": []}


def test_a_stream_of_pictures_is_not_counted_where_there_is_only_sound(store: Store, tmp_path: Path) -> None:
    store.add_stream(StreamInfo("likeness", "frames", "b", 0))
    streams = {"streams": {"likeness": "b"}}
    for number, name in enumerate(("film.mp4", "sound.mp3")):
        record = record_of(tmp_path, number, name, name, {}, {**streams, "has_picture": name == "film.mp4"})
        store.put_videos([(record, {"likeness": ClipColumns(np.zeros(1), np.ones(1))})])
    assert facet(store, "video.stream")["frames"] == 1
    assert listed(store, "video.stream=likeness") == ["film.mp4"]


def test_another_value_of_a_key_can_be_chosen_and_other_keys_are_narrowed(store: Store) -> None:
    assert facet(store, "language", "language=de") == {"English": 2, "German": 1}
    assert sum(facet(store, "room", "language=de").values()) == 1


def test_the_condition_of_a_facet_leaves_as_many_videos_as_it_counts(store: Store) -> None:
    for each in Library.of(store).facets(make_filter(())):
        for value in each.values:
            assert len(listed(store, value.where)) == value.count, value


def test_folders_are_counted_with_all_below_them(store: Store, tmp_path: Path) -> None:
    talks = tmp_path / "talks"
    assert Library.of(store).root == str(talks)
    assert facet(store, "video.folder") == {"2020": 2, "2021": 3}
    assert facet(store, "video.folder", f"video.folder={talks}/2021") == {"a": 1, "b[1]": 1}
    assert facet(store, "video.folder", "language=de") == {"2020": 1}


def test_a_folder_that_holds_one_other_alone_is_passed_over(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "deep.corpus", create=True)
    paths = ("a/b/c/1.mp4", "a/b/c/2.mp4", "d.mp4")
    put(store, [record_of(tmp_path, row, f"v{row}", path, {}, {}) for row, path in enumerate(paths)])
    assert facet(store, "video.folder") == {"a/b/c": 2}


def test_a_file_that_may_not_be_looked_at_is_not_missing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = record_of(tmp_path / "locked", 5, "locked", "talk.mp4", {}, {"words": ""})
    put(store, [locked])
    Path(locked.path).unlink()
    stat = Path.stat

    def refused(path: Path, **options: bool) -> os.stat_result:
        if "locked" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    assert "locked" not in listed(store, "video.state=missing")


def test_a_file_that_is_deleted_is_missing_without_an_index_run(store: Store, tmp_path: Path) -> None:
    (tmp_path / "talks" / "2020" / "talk 2.mp4").unlink()
    assert listed(store, "video.state=missing") == ["gone", "talk_2"]


def test_values_that_no_condition_can_say_are_left_out(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "odd.corpus", create=True)
    metadata = [{"a": "x*[y]"}, {"a": "two\nlines"}, {"a:b": "no key"}, {"a": " spaces "}, {"a": "\ud800"}]
    put(store, [record_of(tmp_path, row, f"v{row}", f"{row}.mp4", m, {}) for row, m in enumerate(metadata)])
    assert facet(store, "a") == {"x*[y]": 1}
    assert listed(store, "a=x[*][[]y]") == ["v0"]


def test_corpora_side_by_side_are_chosen_by_name(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "two.corpus", create=True)
    put(other, [record_of(tmp_path, 7, "else", "else.mp4", {}, {"content_hash": "ff"})])
    both = Corpus([tmp_path / "one.corpus", tmp_path / "two.corpus"])
    [corpora] = [facet for facet in both.facets() if facet.key == "video.corpus"]
    assert {each.title: each.count for each in corpora.values} == {"one.corpus": 5, "two.corpus": 1}
    assert [video.id for video in both.videos(where=["video.corpus=two.corpus"])] == ["else"]
    assert [video.id for video in both.videos(where="video.corpus=two.corpus")] == ["else"]


def test_corpora_of_one_name_are_numbered() -> None:
    assert corpus_names(["/a/my.corpus", "/b/my.corpus/", "s3://x/my.corpus"]) == [
        "my.corpus",
        "my.corpus (2)",
        "my.corpus (3)",
    ]


def test_an_empty_corpus_has_an_empty_library(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "empty.corpus", create=True)
    library = Library.of(store)
    assert (library.count, listed(store, sort="name"), library.facets(make_filter(())), library.root) == (
        0,
        [],
        [],
        "",
    )


def test_each_state_but_the_whole_has_a_remedy() -> None:
    assert "--prune" in remedy_of("missing", "my.corpus")
    assert "--retry" in remedy_of("unreadable", "my.corpus")
    assert "`whenabouts index FOLDER --corpus my.corpus`" in remedy_of("damaged", "my.corpus")
    assert remedy_of("fine", "my.corpus") == ""


WORDS = st.text(alphabet="aB12 é[*", max_size=4)
ROWS = st.lists(st.tuples(WORDS, WORDS, st.none() | st.floats(0, 1e5), WORDS), max_size=8)


class Table:
    """A ledger as columns, of records that no disk holds."""

    def __init__(self, records: Sequence[VideoRecord]) -> None:
        from whenabouts.index.records import ledger_rows

        self._table = ledger_rows(records)

    def ledger_columns(self, names: Sequence[str]) -> list[tuple[str, Any]]:
        return [("c", self._table.select(list(names)))]


@given(rows=ROWS, wanted=WORDS)
def test_columns_say_what_records_say(rows: list[tuple[Any, ...]], wanted: str) -> None:
    records = [
        VideoRecord(
            f"v{number}",
            f"/no/{folder}/{number}.mp4",
            title=title,
            duration=duration,
            modified_ns=number,
            metadata={"k": fact, "date": fact},
        )
        for number, (title, folder, duration, fact) in enumerate(rows)
    ]
    library: Library = Library.of(Table(records))  # type: ignore[arg-type]
    for where in ([f"k={wanted}"], [f"k!={wanted}"], ["duration>=100"], [f"path=*{wanted}*"]):
        chosen = make_filter((), where=where)
        expected = chosen.choose(sorted(records, key=lambda record: natural_key(record.video_id)))
        assert library.ids_of(library.rows(chosen).tolist()) == expected, where
    by: dict[Sort, Callable[[VideoRecord], Any]] = {
        "name": lambda r: natural_key(folded_name(r.title or f"{r.video_id[1:]}.mp4")),
        "date": lambda r: recorded(r)[0],
        "length": lambda r: float("inf") if r.duration is None else r.duration,
    }
    for sort, key in by.items():
        in_order = [r.video_id for r in sorted(records, key=lambda r: (key(r), natural_key(r.video_id)))]
        assert library.ids_of(library.rows(make_filter(()), sort).tolist()) == in_order, sort


def test_a_date_without_a_day_is_its_first(tmp_path: Path) -> None:
    record = VideoRecord("v", str(tmp_path / "v.mp4"), metadata={"recorded": "soon", "date": "2001"})
    library: Library = Library.of(Table([record]))  # type: ignore[arg-type]
    assert library._dates.tolist() == [datetime(2001, 1, 1, tzinfo=UTC).timestamp()]


@given(texts=st.lists(st.text(alphabet="a b0129.é-", max_size=8), max_size=6))
def test_numbers_in_names_are_sorted_as_numbers(texts: list[str]) -> None:
    def pieces(text: str) -> list[tuple[int, str]]:
        split = re.split("([0-9]+)", text)
        return [(int(piece), "") if row % 2 else (-1, piece) for row, piece in enumerate(split)]

    assert sorted(texts, key=natural_key) == sorted(texts, key=pieces)
