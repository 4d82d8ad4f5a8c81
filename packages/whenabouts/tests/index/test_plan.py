from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.stream_runs import pictures_run, words_run

from whenabouts.index import plan as planning
from whenabouts.index.estimate import Estimate
from whenabouts.index.plan import Plan, Settings, make_plan, words_signature
from whenabouts.index.records import VideoRecord, video_id_for
from whenabouts.index.stream import StreamRun
from whenabouts.video.files import content_hash, find_files

WORDS = (words_run(),)
SEEN = (words_run(), pictures_run())
Planner = Callable[..., Plan]


@pytest.fixture(autouse=True)
def _no_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    # Estimates are only shown, and each starts a process; `test_estimate.py` has their tests.
    monkeypatch.setattr(planning, "estimated", lambda *args, **options: Estimate())


class VideoFolder:
    """A folder of files, and the ledger of a corpus in which they were indexed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger: list[VideoRecord] = []

    def write(self, name: str, content: str = "") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((content or f"content of {name}").encode("utf-8", "surrogateescape"))
        return path

    def index(self, runs: Sequence[StreamRun] = WORDS, **facts: Any) -> None:
        """Take all files for indexed, as they are now."""
        streams = {run.name: run.fingerprint for run in runs}
        known = {record.path: record.video_id for record in self.ledger}
        self.ledger = []
        for found in find_files([self.folder]).files:
            digest = content_hash(found.path)
            record = VideoRecord(
                video_id=known.get(str(found.path)) or video_id_for(found.path, digest),
                path=str(found.path),
                size=found.size,
                modified_ns=found.modified_ns,
                content_hash=digest,
                kind=found.kind,
                streams=streams,
                words="sidecar:x" if found.sidecars else "",
                words_signature=words_signature(found),
                has_picture=found.kind == "media",
            )
            self.ledger.append(replace(record, **facts))

    def plan(
        self, runs: Sequence[StreamRun] = WORDS, settings: Settings | None = None, **options: Any
    ) -> Plan:
        return make_plan(find_files([self.folder]), self.ledger, settings or Settings(), runs, **options)


@pytest.fixture()
def folder(tmp_path: Path) -> VideoFolder:
    return VideoFolder(tmp_path / "videos")


def reasons(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {work.task.path.name: work.reasons for work in plan.work}


def is_idle(plan: Plan) -> bool:
    return not (plan.work or plan.records or plan.renamed or plan.obsolete)


def test_new_files_are_read_whole_in_order_of_their_paths(folder: VideoFolder) -> None:
    for name in ("b.mp4", "a.mp4", "c.vtt"):
        folder.write(name)
    plan = folder.plan(SEEN)
    assert [(w.task.path.name, w.task.number, w.reasons) for w in plan.work] == [
        ("a.mp4", 0, ("new",)),
        ("b.mp4", 1, ("new",)),
        ("c.vtt", 2, ("new",)),
    ]
    assert [bool(w.task.frames) for w in plan.work] == [True, True, False]
    assert all(w.task.cues for w in plan.work)


def test_files_of_known_size_and_time_are_not_even_hashed(
    folder: VideoFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a.mp4")
    folder.index()

    def no_hash(path: Path) -> str:
        raise AssertionError(f"{path} was hashed")

    monkeypatch.setattr(planning, "content_hash", no_hash)
    plan = folder.plan()
    assert is_idle(plan)
    assert plan.unchanged == 1


def test_a_touched_file_is_not_read_again_and_its_new_time_is_noted(folder: VideoFolder) -> None:
    path = folder.write("a.mp4")
    folder.index()
    os.utime(path, ns=(5, 5))
    plan = folder.plan()
    assert not plan.work
    assert plan.unchanged == 1
    assert [record.modified_ns for record in plan.records] == [5]
    folder.ledger = list(plan.records)
    assert is_idle(folder.plan())


def test_changed_content_is_read_again_as_the_video_it_was(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    folder.index()
    path = folder.write("a.mp4", "other content")
    (work,) = folder.plan().work
    assert work.reasons == ("changed",)
    assert work.record == folder.ledger[0]
    assert work.task.content_hash in ("", content_hash(path))


def test_a_rename_is_followed_without_reading(folder: VideoFolder) -> None:
    old = folder.write("a.mp4")
    folder.index()
    new = old.rename(old.with_name("b.mp4"))
    plan = folder.plan()
    assert plan.renamed == ((old, new),)
    assert not plan.work
    assert [(r.video_id, r.path) for r in plan.records] == [(folder.ledger[0].video_id, str(new))]


def test_a_title_that_was_the_name_of_the_file_follows_a_rename(folder: VideoFolder) -> None:
    for name in ("IMG_1", "talk"):
        folder.write(f"{name}.mp4")
    folder.index()
    titles = {"IMG_1.mp4": "IMG 1", "talk.mp4": "On harbours"}
    folder.ledger = [replace(each, title=titles[Path(each.path).name]) for each in folder.ledger]
    for path in list(folder.folder.iterdir()):
        path.rename(path.with_name(f"my {path.name}"))
    assert {record.title for record in folder.plan().records} == {"my IMG 1", "On harbours"}


def places(plan: Plan) -> dict[str, str]:
    """The first letter of each id, and the name of its file now."""
    return {record.video_id[0]: Path(record.path).name for record in plan.records}


@pytest.mark.parametrize(
    "moves",
    [["c d", "b c", "a b"], ["a x", "b a", "x b"], ["a x", "b a", "c b", "x c"], ["a x", "b a"]],
    ids=["each to the next", "two exchanged", "three exchanged", "one takes another's old name"],
)
def test_names_that_other_videos_had_are_followed(folder: VideoFolder, moves: list[str]) -> None:
    at = {name: folder.write(f"{name}.mp4") for name in "abc"}
    folder.index()
    for move in moves:
        old, new = (folder.folder / f"{name}.mp4" for name in move.split())
        old.rename(new)
        at = {name: new if path == old else path for name, path in at.items()}
    plan = folder.plan()
    moved = {name: path.name for name, path in at.items() if path.stem != name}
    assert not plan.work and places(plan) == moved and len(plan.renamed) == len(moved)


@pytest.mark.slow
def test_thousands_of_names_that_move_up_by_one_are_followed(folder: VideoFolder) -> None:
    names = [f"{number:04}.mp4" for number in range(1500)]
    for name in names:
        folder.write(name)
    folder.index()
    for old, new in zip(reversed(names), reversed([*names[1:], "1500.mp4"]), strict=True):
        (folder.folder / old).rename(folder.folder / new)
    plan = folder.plan()
    assert not plan.work and len(plan.renamed) == len(names)
    (folder.folder / "1500.mp4").unlink()
    lost = folder.plan()
    assert not lost.renamed and len(lost.work) == len(names) - 1, "each name keeps its id if one is lost"


def test_a_video_in_the_place_of_one_that_is_lost_keeps_the_id_of_the_place(folder: VideoFolder) -> None:
    a, b = folder.write("a.mp4"), folder.write("b.mp4")
    folder.index()
    a.rename(b)
    plan = folder.plan()
    assert reasons(plan) == {"b.mp4": ("changed",)} and not plan.renamed
    assert [work.record.video_id[0] for work in plan.work if work.record] == ["b"]
    assert [Path(record.path).name for record in plan.gone] == ["a.mp4"]


def test_a_video_that_was_moved_away_keeps_its_id_and_a_new_one_in_its_place_gets_another(
    folder: VideoFolder,
) -> None:
    path = folder.write("a.mp4")
    folder.index()
    path.rename(folder.folder / "kept.mp4")
    folder.write("a.mp4", "another film")
    plan = folder.plan()
    assert places(plan) == {"a": "kept.mp4"} and reasons(plan) == {"a.mp4": ("new",)}
    assert plan.work[0].record is None


def test_a_moved_folder_is_followed_and_sidecars_are_not_read_again(folder: VideoFolder) -> None:
    for number in range(5):
        folder.write(f"trip/{number}.mp4")
        folder.write(f"trip/{number}.srt")
    folder.index()
    (folder.folder / "trip").rename(folder.folder / "journey")
    plan = folder.plan()
    assert len(plan.renamed) == 5
    assert not plan.work
    assert {Path(r.path).parent.name for r in plan.records} == {"journey"}


def test_a_renamed_video_without_its_sidecar_loses_its_words(folder: VideoFolder) -> None:
    old = folder.write("a.mp4")
    folder.write("a.srt")
    folder.index()
    old.rename(old.with_name("b.mp4"))
    plan = folder.plan()
    assert reasons(plan) == {"b.mp4": ("words changed",), "a.srt": ("new",)}
    assert len(plan.renamed) == 1
    assert not any("a.srt" in note for note in plan.notes)  # later runs cannot know whose subtitles they are


def test_what_else_is_asked_for_is_done_along_with_a_rename(folder: VideoFolder) -> None:
    old = folder.write("a.mp4")
    folder.index()
    new = old.rename(old.with_name("b.mp4"))
    (work,) = folder.plan(SEEN).work
    assert work.reasons == ("pictures added",)
    assert work.record is not None
    assert work.record.path == str(new)


def test_a_second_copy_is_taken_once(folder: VideoFolder) -> None:
    first = folder.write("a.mp4", "same")
    second = folder.write("b.mp4", "same")
    plan = folder.plan()
    assert reasons(plan) == {"a.mp4": ("new",)}
    assert plan.duplicates == ((second, first),)
    second.unlink()
    folder.index()
    folder.write("b.mp4", "same")
    again = folder.plan()
    assert not again.work
    assert again.duplicates == ((second, first),)


def test_of_two_copies_the_one_with_subtitles_is_taken(folder: VideoFolder) -> None:
    bare = folder.write("a.mp4", "same")
    folder.write("b.mp4", "same")
    folder.write("b.srt", "1\n00:00:00,000 --> 00:00:01,000\nwords\n")
    folder.write("c.mp4", "other")
    plan = folder.plan()
    assert [work.task.path.name for work in plan.work] == ["b.mp4", "c.mp4"]
    assert [work.task.number for work in plan.work] == [0, 1]
    assert plan.duplicates == ((bare, bare.with_name("b.mp4")),)
    assert not any("are not read" in note for note in plan.notes)


def test_subtitles_that_stay_behind_are_told_of(folder: VideoFolder) -> None:
    film = folder.write("a.mp4", "film")
    folder.write("a.srt", "1\n00:00:00,000 --> 00:00:01,000\nwords\n")
    folder.index()
    assert not any("no longer beside" in note for note in folder.plan().notes)
    moved = film.rename(film.with_name("b.mp4"))
    assert any(f"the subtitles of {moved} are no longer beside it" in note for note in folder.plan().notes)


def test_an_edited_transcript_loses_no_words(folder: VideoFolder) -> None:
    cue = "1\n00:00:00,000 --> 00:00:01,000\nwords\n"
    folder.write("a.srt", cue)
    folder.index(words="sidecar:a.srt")
    folder.write("a.srt", cue + cue)
    plan = folder.plan()
    assert [work.record.words for work in plan.work if work.record] == ["sidecar:a.srt"] and not plan.notes


def test_subtitles_beside_a_second_copy_are_told_of(folder: VideoFolder) -> None:
    first = folder.write("a.mp4", "same")
    folder.index()
    second = folder.write("b.mp4", "same")
    folder.write("b.srt", "1\n00:00:00,000 --> 00:00:01,000\nwords\n")
    told = f"the subtitles beside {second} are not read, because the same recording is indexed from {first}"
    assert any(note.startswith(told) for note in folder.plan().notes)


def test_metadata_of_a_second_copy_are_told_of(folder: VideoFolder) -> None:
    first, second = folder.write("a.mp4", "same"), folder.write("b.mp4", "same")
    told = (
        f"the metadata 'speaker' of {second} are not stored, because the same recording is indexed from "
        f"{first}: give them for that file"
    )
    for_all = Settings(metadata={"year": "1999"})
    for_one = replace(for_all, metadata_of={"b.mp4": {"speaker": "Bob"}})
    assert folder.plan(settings=for_all).notes == ()
    assert folder.plan(settings=for_one).notes == (told,)
    # The first is indexed, and is not among the files of this run.
    second.unlink()
    folder.index(metadata={"year": "1999", "speaker": "Ada"})
    folder.write("b.mp4", "same")

    def notes(settings: Settings) -> tuple[str, ...]:
        return make_plan(find_files([second]), folder.ledger, settings, WORDS).notes

    assert notes(for_one) == (told,)
    assert notes(for_all) == ()
    # A renamed recording has the metadata of its new name.
    first.rename(folder.folder / "0.mp4")
    assert folder.plan(settings=for_one).notes == (told.replace("a.mp4", "0.mp4"),)
    hostile = replace(for_all, metadata_of={"b.mp4": {f"\x1b[31m{'x' * 99}{key}": key for key in range(9)}})
    (note,) = folder.plan(settings=hostile).notes
    assert note.isprintable() and len(note) < 800


def test_entries_of_a_metadata_file_that_fit_no_file_are_told_of(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    folder.index()
    other = replace(folder.ledger[0], video_id="other", path="/elsewhere/talks/b.mp4")
    folder.ledger.append(other)
    settings = Settings(metadata_of={"a": {"x": 1}, "videos/a.mp4": {"x": 1}, "talks/b.mp4": {"x": 1}})
    assert folder.plan(settings=settings).notes == ()
    wrong = {name: {"x": 1} for name in ("A.mp4", "b.mov", "\ud800\x1b[31m", "d.mp4")}
    plan = folder.plan(settings=Settings(metadata_of={**settings.metadata_of, **wrong}))
    example = "(such as A.mp4, b.mov, \\ud800[31m)"
    told = f"4 entries of the metadata file fit no file found or indexed {example}"
    assert plan.notes == (told,) == tuple(plan.to_json()["notes"])
    assert f"note: {told}" in plan.lines()


def test_only_some_copies_are_named(folder: VideoFolder) -> None:
    for name in "abcdefghi":
        folder.write(f"{name}.mp4", "same")
    settings = Settings(metadata_of={f"{name}.mp4": {"speaker": name} for name in "bcdefghi"})
    notes = folder.plan(settings=settings).notes
    assert (len(notes), notes[-1]) == (6, "… and 3 more like that")


def test_what_a_changed_file_held_before_is_a_video_of_its_own(folder: VideoFolder) -> None:
    folder.write("one/a.mp4", "first cut")
    folder.index()
    folder.write("two/a.mp4", "first cut")
    folder.write("one/a.mp4", "second cut")
    assert [work.reasons for work in folder.plan().work] == [("changed",), ("new",)]


def test_two_videos_of_one_name_get_two_ids(folder: VideoFolder) -> None:
    folder.write("one/a.mp4", "1")
    folder.write("two/a.mp4", "2")
    folder.index()
    assert len({record.video_id for record in folder.ledger}) == 2
    taken = {video_id_for(Path("a.mp4"), "0" * 32)}
    assert video_id_for(Path("a.mp4"), "0" * 32, taken) not in taken


@pytest.mark.parametrize("change", ["added", "changed", "removed"])
def test_a_change_of_the_sidecar_reads_words_and_no_pictures(folder: VideoFolder, change: str) -> None:
    folder.write("a.mp4")
    sidecar = folder.folder / "a.srt"
    if change != "added":
        folder.write("a.srt")
    folder.index(SEEN)
    if change == "removed":
        sidecar.unlink()
    else:
        folder.write("a.srt", "other words")
    (work,) = folder.plan(SEEN).work
    assert work.reasons == ("words changed",)
    assert work.task.cues
    assert work.task.frames == ()
    assert not work.task.shots
    assert work.task.content_hash == folder.ledger[0].content_hash


def test_a_transcript_whose_recording_turns_up_gives_way_to_it(folder: VideoFolder) -> None:
    folder.write("talk.vtt")
    folder.index()
    alone = folder.ledger[0].video_id
    folder.write("talk.mp4")
    (work,) = folder.plan().work
    assert work.supersedes == (alone,)


def test_retry_takes_what_failed_and_nothing_else(folder: VideoFolder) -> None:
    for name in ("bad.mp4", "good.mp4"):
        folder.write(name)
    folder.index()
    folder.ledger = [
        replace(r, state="failed", content_hash="", streams={}) if "bad" in r.path else r
        for r in folder.ledger
    ]
    folder.write("new.mp4")
    assert reasons(folder.plan(retry=True)) == {"bad.mp4": ("retry",)}
    plain = folder.plan()
    assert reasons(plain) == {"new.mp4": ("new",)}
    assert plain.failed_before == 1
    folder.write("bad.mp4", "mended")
    assert reasons(folder.plan())["bad.mp4"] == ("changed",)


def test_a_row_that_a_crash_left_is_done_again_under_its_id(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    folder.index()
    folder.ledger = [replace(folder.ledger[0], size=-1, modified_ns=0, content_hash="", streams={})]
    (work,) = folder.plan().work
    assert work.reasons == ("changed",)
    assert work.record == folder.ledger[0]


def test_a_failed_row_beside_the_finished_one_of_the_same_file_goes(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    folder.index()
    done = folder.ledger[0]
    failed = replace(done, video_id="a-failed-1", state="failed", content_hash="", streams={})
    for ledger in ([done, failed], [failed, done]):
        folder.ledger = ledger
        plan = folder.plan()
        assert plan.obsolete == ("a-failed-1",)
        assert plan.unchanged == 1


def test_new_metadata_describes_anew_and_reads_nothing(folder: VideoFolder) -> None:
    path = folder.write("a.mp4")
    folder.index(metadata={"camera": "x", "title": "Old"}, title="Old")
    plan = folder.plan(settings=Settings(metadata_of={path.name: {"title": "New"}}))
    assert not plan.work
    assert plan.described == 1
    (record,) = plan.records
    assert (record.title, dict(record.metadata)) == ("New", {"camera": "x", "title": "New"})


def test_adding_pictures_later_decodes_and_reads_no_words(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    folder.write("b.vtt")
    folder.index()
    (work,) = folder.plan(SEEN).work
    assert work.reasons == ("pictures added",)
    assert work.task.frames == (SEEN[1].reads.frames,)
    assert not work.task.cues


def test_shots_are_added_without_words_or_pictures(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    folder.index()
    (work,) = folder.plan(settings=Settings(shots=True)).work
    assert work.reasons == ("shots added",)
    assert work.task.shots
    assert work.task.frames == ()
    assert not work.task.cues
    folder.index(shots=(1.0,))
    assert is_idle(folder.plan(settings=Settings(shots=True)))


@pytest.mark.parametrize(
    ("words", "again"),
    [("", True), ("speech:small", False), ("speech:large", True), ("no sound", False), ("embedded:2", False)],
)
def test_speech_is_recognised_only_where_it_was_not(folder: VideoFolder, words: str, again: bool) -> None:
    folder.write("a.mp4")
    folder.index(words=words)
    plan = folder.plan(settings=Settings(transcribe="small"))
    assert reasons(plan) == ({"a.mp4": ("words added",)} if again else {})
    assert is_idle(folder.plan())


def test_another_text_encoder_reads_words_of_everything(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    folder.write("b.vtt")
    folder.index([words_run("letters")])
    plan = folder.plan()
    assert reasons(plan) == {"a.mp4": ("words added",), "b.vtt": ("words added",)}


def test_names_that_are_no_utf8_are_planned_and_printed(folder: VideoFolder) -> None:
    name = os.fsdecode(b"caf\xe9 \xff\n'\".mp4")
    try:
        folder.write(name)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    plan = folder.plan()
    assert plan.work[0].task.path.name == name
    "\n".join(plan.lines()).encode()
    assert str(plan.to_json()).encode()
    folder.index()
    assert is_idle(folder.plan())


def test_paths_with_dots_name_the_same_file(folder: VideoFolder) -> None:
    folder.write("sub/a.mp4")
    folder.index()
    dotted = folder.folder / "sub" / ".." / "sub" / "a.mp4"
    plan = make_plan(find_files([dotted]), folder.ledger, Settings(), WORDS)
    assert is_idle(plan)
    assert plan.unchanged == 1


def test_what_cannot_be_reached_is_left_out_with_its_reason_once(folder: VideoFolder) -> None:
    folder.write("a.mp4")
    missing = folder.folder / "missing.mp4"
    plan = make_plan(find_files([folder.folder, missing]), [], Settings(), WORDS)
    line = next(line for line in plan.lines() if "left out" in line)
    assert line.count("missing.mp4") == 1
    assert plan.to_json()["problems"][0]["path"] == str(missing)
