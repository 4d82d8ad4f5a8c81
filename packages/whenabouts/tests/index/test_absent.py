"""What an index run misses or leaves out: files that are gone, were removed, or fit a pattern."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from whenabouts import Corpus, UsageError
from whenabouts.cli.main import main
from whenabouts.index.absent import safely_pruned
from whenabouts.index.records import VideoRecord
from whenabouts.indexing import find_moved, plan_index
from whenabouts.video.files import Findings, SourceFile
from whenabouts.video.objects import source_path

pytestmark = pytest.mark.usefixtures("unmeasured")


def write(path: Path, words: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"WEBVTT\n\n00:01.000 --> 00:03.000\n{words}\n")
    return path


@pytest.fixture()
def videos(tmp_path: Path, samples: Path) -> Path:
    """A recording with subtitles in two languages, and two transcripts that stand alone."""
    folder = tmp_path / "videos"
    write(folder / "beetles.vtt", "Beetles are collected in small glass jars.")
    write(folder / "drafts" / "glacier.vtt", "The glacier melts faster than expected.")
    shutil.copy2(samples / "friday.mp4", folder / "friday.mp4")
    write(folder / "friday.vtt", "The crown jewels were stolen.")
    write(folder / "friday.de.vtt", "Die Kronjuwelen wurden gestohlen.")
    return folder


@pytest.fixture()
def corpus(corpus_dir: Path, videos: Path) -> Corpus:
    made = Corpus(corpus_dir, create=True)
    assert made.add(videos, processes=1).added == 3
    return made


def names(corpus: Corpus) -> set[str]:
    return {Path(video.path).name for video in corpus.videos()}


@pytest.mark.slow
def test_deleted_files_are_marked_and_said_and_taken_out_only_when_that_is_wished(
    corpus: Corpus, videos: Path
) -> None:
    (videos / "beetles.vtt").unlink()
    summary = corpus.add(videos)
    assert (summary.gone, summary.pruned, summary.unchanged) == ([videos / "beetles.vtt"], [], 2)
    assert any("gone" in line and "--prune" in line for line in summary.lines())
    assert corpus.resolve("beetles").state == "gone"
    assert corpus.stats().to_json()["gone"] == [str(videos / "beetles.vtt")]
    assert any("gone" in line for line in corpus.show("beetles").lines())
    result = corpus.search("beetles in glass jars", k=1)
    assert result[0].path == str(videos / "beetles.vtt")
    assert any("missing files: beetles.vtt;" in note for note in result.notes)
    assert corpus.add(videos).gone == [videos / "beetles.vtt"]
    summary = corpus.add(videos, prune=True)
    assert (summary.gone, summary.pruned) == ([], [videos / "beetles.vtt"])
    assert names(corpus) == {"glacier.vtt", "friday.mp4"}
    write(videos / "beetles.vtt", "Beetles are collected in small glass jars.")
    assert corpus.add(videos).added == 1  # what was pruned was not removed by its owner


@pytest.mark.slow
def test_a_file_that_is_back_is_no_longer_gone(corpus: Corpus, videos: Path, tmp_path: Path) -> None:
    aside = shutil.move(videos / "beetles.vtt", tmp_path / "aside.vtt")
    assert len(corpus.add(videos).gone) == 1
    shutil.move(aside, videos / "beetles.vtt")
    assert corpus.add(videos).gone == []
    assert corpus.resolve("beetles").state == "done"
    assert not corpus.search("beetles in glass jars", k=1).notes


def test_only_what_was_looked_for_is_gone(corpus: Corpus, videos: Path) -> None:
    (videos / "beetles.vtt").unlink()
    assert corpus.add(videos / "drafts").gone == []
    (videos / "drafts" / "glacier.vtt").rename(videos / "ice.vtt")
    summary = corpus.add(videos)
    assert (summary.renamed, summary.gone) == (1, [videos / "beetles.vtt"])


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_folder_without_any_file_is_not_pruned_for_its_disk_may_not_be_connected(
    corpus: Corpus, videos: Path, is_missing: bool
) -> None:
    (videos / "drafts" / "glacier.vtt").unlink()
    if is_missing:
        (videos / "drafts").rmdir()
    summary = corpus.add(videos / "drafts", prune=True)
    assert (summary.pruned, summary.gone) == ([], [videos / "drafts" / "glacier.vtt"])
    assert any("may not be connected" in note for note in summary.notes)
    assert len(corpus.videos()) == 3


def test_a_folder_that_is_empty_below_the_given_one_is_not_pruned(corpus: Corpus, videos: Path) -> None:
    """A disk was mounted there."""
    shutil.rmtree(videos / "drafts")
    (videos / "drafts").mkdir()
    summary = corpus.add(videos, prune=True)
    assert (summary.pruned, summary.gone) == ([], [videos / "drafts" / "glacier.vtt"])
    assert any("drafts" in note and "may not be connected" in note for note in summary.notes)
    (videos / "drafts" / "notes.txt").write_text("The disk is connected.")
    assert corpus.add(videos, prune=True).pruned == [videos / "drafts" / "glacier.vtt"]


def test_a_file_that_is_gone_is_pruned_by_its_own_name(corpus: Corpus, videos: Path) -> None:
    (videos / "drafts" / "glacier.vtt").unlink()
    assert corpus.add(videos / "drafts" / "glacier.vtt", prune=True).pruned == [
        videos / "drafts" / "glacier.vtt"
    ]


@pytest.mark.slow
def test_what_was_removed_stays_out_until_it_is_wished_again(corpus: Corpus, videos: Path) -> None:
    corpus.remove("beetles")
    os.utime(videos / "beetles.vtt")
    summary = corpus.add(videos)
    assert (summary.added, summary.removed_before) == (0, 1)
    (videos / "beetles.vtt").rename(videos / "insects.vtt")
    plan = plan_index(corpus, [videos])
    assert not plan.work and any("removed (--again" in line for line in plan.lines())
    assert corpus.add(videos, again=True).added == 1
    assert corpus.add(videos).removed_before == 0
    corpus.remove("insects")
    write(videos / "insects.vtt", "Other words are another recording.")
    assert corpus.add(videos).added == 1


@pytest.mark.slow
@pytest.mark.parametrize("prune", [False, True])
def test_subtitles_whose_recording_is_gone_are_no_recording_unasked(
    corpus: Corpus, videos: Path, prune: bool
) -> None:
    (videos / "friday.mp4").unlink()
    for _ in range(2):
        summary = corpus.add(videos, prune=prune)
        assert summary.added == 0
        notes = [note for note in summary.notes if "friday" in note and "--again" in note]
        assert len(notes) == 2
    assert names(corpus) == {"beetles.vtt", "glacier.vtt"} | (set() if prune else {"friday.mp4"})
    assert corpus.add(videos, again=True).added == 2


@pytest.mark.slow
def test_subtitles_that_a_renamed_recording_left_are_a_transcript_at_once(
    corpus_dir: Path, videos: Path
) -> None:
    corpus = Corpus(corpus_dir, create=True)
    corpus.add(videos)
    (videos / "friday.mp4").rename(videos / "another.mp4")
    assert corpus.add(videos).added == 2
    again = corpus.add(videos)
    assert (again.added, again.updated) == (0, 0)
    assert {(Path(video.path).name, video.kind) for video in corpus.records()} >= {
        ("another.mp4", "media"),
        ("friday.vtt", "transcript"),
    }


def test_patterns_leave_out_files_folders_and_subtitles(corpus_dir: Path, videos: Path) -> None:
    corpus = Corpus(corpus_dir, create=True)
    summary = corpus.add(videos, exclude=["drafts/", "beet*", "*.de.vtt"], processes=1)
    assert names(corpus) == {"friday.mp4"}
    assert any("3 files or folders are left out" in note for note in summary.notes)
    assert ".de.vtt" not in corpus.resolve("friday").words_signature


def found(videos: Path, **options: object) -> set[str]:
    from whenabouts.video.files import find_files

    files = find_files([videos], **options).files  # type: ignore[arg-type]
    return {file.path.relative_to(videos).as_posix() for file in files}


def test_a_file_in_a_folder_names_what_is_left_out_below_it(videos: Path) -> None:
    (videos / ".whenaboutsignore").write_text("# not yet\n*.vtt\n!beetles.vtt\n")
    assert found(videos) == {"beetles.vtt", "friday.mp4"}
    (videos / "drafts" / ".whenaboutsignore").write_text("!glacier.vtt\n")
    assert found(videos) == {"beetles.vtt", "friday.mp4", "drafts/glacier.vtt"}
    assert found(videos, exclude=["/beetles.vtt"]) == {"friday.mp4", "drafts/glacier.vtt"}
    (videos / ".whenaboutsignore").write_text("drafts/\n", encoding="utf-8-sig")  # as Notepad saves it
    assert "drafts/glacier.vtt" not in found(videos)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_text("ok\n!\n"), "ignore: .*'!'.*gitignore"),
        (lambda path: path.write_text("ok\n*a*a*a*a*a*b\n"), r"ignore, pattern 2: more than 3 \*"),
        (lambda path: path.write_text("[[z-a]\n"), "ignore: bad character range"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "ignore: cannot be read"),
        (lambda path: path.write_bytes(b"a\n" * (1 << 20)), "ignore: .*larger than 1 MB"),
        (lambda path: path.mkdir(), "ignore: cannot be read"),
        (lambda path: path.symlink_to(path), "ignore: cannot be read"),
        (os.mkfifo, "ignore: cannot be read"),
    ],
)
def test_a_folder_whose_patterns_cannot_be_used_is_not_looked_at_and_keeps_its_videos(
    corpus: Corpus,
    videos: Path,
    spoil: Callable[[Path], object],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drafts, before = videos / "drafts", names(corpus)
    write(drafts / "new.vtt", "Nobody knows whether this is wanted.")
    write(videos / "boats.vtt", "My sister builds wooden boats.")
    (drafts / "glacier.vtt").rename(drafts / "renamed.vtt")  # which nobody can tell from a deletion
    (videos / "beetles.vtt").unlink()
    spoil(drafts / ".whenaboutsignore")
    command = ["index", str(videos), "--corpus", corpus.location, "--prune", "--processes", "1", "--json"]
    assert main([*command, "--dry-run"]) == 2
    assert main(command) == 2
    said = capsys.readouterr()
    assert said.err.count("1 folder was not read") == 2
    summary = json.loads(said.out.splitlines()[-1])
    assert (summary["added"], summary["pruned"]) == (1, [str(videos / "beetles.vtt")])
    ((path, why),) = [(row["path"], row["why"]) for row in summary["left_out"]]
    assert path == str(drafts) and re.search(message, why) and "mend or delete it; this folder" in why
    after = Corpus(corpus.location)
    assert names(after) == before - {"beetles.vtt"} | {"boats.vtt"}
    assert after.search("glacier melts").moments and after.resolve("glacier").state == "done"
    spoiled = drafts / ".whenaboutsignore"
    shutil.rmtree(spoiled) if spoiled.is_dir() else spoiled.unlink()
    assert main(command) == 0
    assert names(Corpus(corpus.location)) == {"boats.vtt", "friday.mp4", "new.vtt", "renamed.vtt"}


def test_a_searched_folder_whose_patterns_cannot_be_used_is_an_error(
    corpus: Corpus, videos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (videos / ".whenaboutsignore").mkdir()
    assert main(["index", str(videos), "--corpus", corpus.location, "--prune"]) == 2
    assert "nothing to index in" in (said := capsys.readouterr().err) and "cannot be read" in said
    assert len(names(Corpus(corpus.location))) == 3


def test_an_invalid_pattern_of_the_caller_is_refused(videos: Path) -> None:
    with pytest.raises(UsageError, match=r"--exclude, pattern 1: more than 3 \*"):
        found(videos, exclude=["*a*a*a*a*a*b"])


def test_links_in_folders_are_followed_or_not(videos: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "boats.vtt", "My sister builds wooden boats.")
    (videos / "linked").symlink_to(tmp_path / "elsewhere")
    (videos / "one.vtt").symlink_to(write(tmp_path / "single.vtt", "A saxophone plays."))
    both = found(videos)
    assert both - found(videos, follow=False) == {"linked/boats.vtt", "one.vtt"}
    assert found(videos / "linked", follow=False) == {"boats.vtt"}  # it was given by name


def test_a_file_on_a_store_is_gone_only_where_an_index_run_missed_it(tmp_path: Path) -> None:
    here = tmp_path / "a.mp4"
    here.touch()
    there = VideoRecord("b", "s3://films/b.mp4")
    assert not VideoRecord("a", str(here)).is_gone
    assert VideoRecord("a", str(tmp_path / "none.mp4")).is_gone
    assert not there.is_gone
    assert replace(there, state="gone").is_gone


def test_a_deleted_object_is_pruned_unless_nothing_is_left_at_the_given_place() -> None:
    kept, row = source_path("s3://films/a/kept.mp4"), VideoRecord("b", "s3://films/b/gone.mp4")
    findings = Findings((SourceFile(kept, "media", (), 1, 1),), (), searched=(source_path("s3://films"),))
    assert safely_pruned([row], findings) == ([row], [])
    nothing = replace(findings, files=())
    assert safely_pruned([row], nothing)[0] == []


def test_a_file_that_was_given_with_an_empty_folder_above_it_is_kept(corpus: Corpus, videos: Path) -> None:
    (videos / "drafts" / "glacier.vtt").unlink()
    summary = corpus.add(videos / "drafts", videos / "drafts" / "glacier.vtt", prune=True)
    assert summary.pruned == []
    (note,) = [note for note in summary.notes if note.startswith("kept 1 video of ")]
    assert "drafts, where nothing was found to index: the disk may not be connected" in note


def test_a_file_that_may_not_be_looked_at_does_not_count_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    assert not VideoRecord("a", "/srv/ada/a.mp4").is_gone


@pytest.mark.slow
def test_a_file_that_is_added_again_has_the_id_it_had(corpus: Corpus, videos: Path) -> None:
    video_id = corpus.resolve("beetles").video_id
    (videos / "beetles.vtt").rename(videos / "bugs.vtt")
    corpus.add(videos)
    assert corpus.remove("bugs")
    assert corpus.add(videos).removed_before == 1
    assert corpus.add(videos, again=True).added == 1
    assert corpus.resolve("bugs").video_id == video_id


def test_each_content_that_was_removed_at_a_path_stays_out(corpus: Corpus, videos: Path) -> None:
    path = videos / "beetles.vtt"
    first = path.read_bytes()
    corpus.remove("beetles")
    write(path, "Butterflies are drawn in pencil.")
    corpus.add(videos)
    corpus.remove("beetles")
    path.write_bytes(first)
    assert corpus.add(videos).removed_before == 1 and names(corpus) == {"glacier.vtt", "friday.mp4"}


def test_the_title_of_a_relocated_video_follows_its_name(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", create=True)
    old = [write(tmp_path / "old" / f"{name}.vtt", f"The {name} is old.") for name in ("one", "two")]
    corpus.add(old[0].parent, processes=1)
    new = [path.rename(tmp_path / name) for path, name in zip(old, ("sea_1.vtt", "sea_2.vtt"), strict=True)]
    corpus.relocate("one", new[0])
    (pair,) = find_moved(corpus, new[1]).pairs
    assert pair[1].title == "sea 2"
    assert {record.title for record in corpus.records()} == {"sea 1", "sea 2"}
