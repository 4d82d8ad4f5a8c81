from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import pytest

from whenabouts.video.files import Findings, content_hash, find_files, printable


def make(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(findings: Findings) -> list[str]:
    return [file.path.name for file in findings.files]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Tests may run as root, to whom every file is open."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that anybody may enter, as are those above it."""
    for folder in (tmp_path, *tmp_path.parents):
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.geteuid() and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


def test_recordings_sound_and_transcripts_are_found_at_any_depth_and_sorted(tmp_path: Path) -> None:
    for name in ("b/c/d.mkv", "a.MP4", "z.mp3", "b/lecture.vtt", "b/notes.txt", "photo.jpg"):
        make(tmp_path / name)
    findings = find_files([tmp_path])
    assert [str(file.path.relative_to(tmp_path)) for file in findings.files] == [
        "a.MP4",
        "b/c/d.mkv",
        "b/lecture.vtt",
        "z.mp3",
    ]
    assert [file.kind for file in findings.files] == ["media", "media", "transcript", "media"]
    assert findings.problems == findings.notes == ()


def test_subtitles_of_the_same_stem_belong_to_their_recording(tmp_path: Path) -> None:
    marks = ("", ".en", ".pt-BR", ".eng", ".forced", ".en.forced", ".zh-Hans", ".english", ".en-orig")
    for mark in marks:
        make(tmp_path / f"talk{mark}.srt")
    make(tmp_path / "talk.mp4")
    make(tmp_path / "talk two.srt")
    make(tmp_path / "talk.chapter1.srt")
    found = {file.path.name: file for file in find_files([tmp_path]).files}
    assert set(found) == {"talk.mp4", "talk two.srt", "talk.chapter1.srt"}
    sidecars = [sidecar.name for sidecar in found["talk.mp4"].sidecars]
    assert sidecars[0] == "talk.srt"
    assert set(sidecars) == {f"talk{mark}.srt" for mark in marks}


def test_subtitles_go_to_the_recording_with_the_longest_matching_stem(tmp_path: Path) -> None:
    for name in ("talk.mp4", "talk.en.mp4", "talk.en.srt", "talk.en.forced.srt"):
        make(tmp_path / name)
    sidecars = {file.path.name: [one.name for one in file.sidecars] for file in find_files([tmp_path]).files}
    assert sidecars == {"talk.mp4": [], "talk.en.mp4": ["talk.en.srt", "talk.en.forced.srt"]}


def sidecars_in(*given: Path) -> dict[str, list[str]]:
    """By the name of each file that is found, the names of its subtitle files."""
    return {file.path.name: [one.name for one in file.sidecars] for file in find_files(given).files}


def test_subtitles_in_another_letter_case_belong_to_their_recording(tmp_path: Path) -> None:
    for name in ("Film.MP4", "film.SRT", "FILM.de.vtt"):
        make(tmp_path / name)
    assert sidecars_in(tmp_path) == {"Film.MP4": ["film.SRT", "FILM.de.vtt"]}


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
def test_subtitles_in_another_unicode_form_belong_to_their_recording(
    tmp_path: Path, forms: tuple[Literal["NFC", "NFD"], Literal["NFC", "NFD"]]
) -> None:
    film, words = (unicodedata.normalize(form, "Über Köln") for form in forms)
    for name in (f"{film}.mp4", f"{words}.en.srt"):
        make(tmp_path / name)
    assert sidecars_in(tmp_path) == {f"{film}.mp4": [f"{words}.en.srt"]}


def test_two_films_that_differ_in_case_alone_keep_their_own_subtitles(tmp_path: Path) -> None:
    for name in ("film.mp4", "Film.mp4", "film.srt", "Film.en.srt", "FILM.de.srt"):
        make(tmp_path / name)
    findings = find_files([tmp_path])
    assert sidecars_in(tmp_path) == {
        "film.mp4": ["film.srt"],
        "Film.mp4": ["Film.en.srt"],
        "FILM.de.srt": [],
    }
    ((path, why),) = findings.notes
    assert path.name == "FILM.de.srt" and "fits Film and film" in why and "exact name" in why
    # The other film counts, though it was not given.
    assert sidecars_in(tmp_path / "film.mp4") == {"film.mp4": ["film.srt"]}


def test_a_pattern_fits_names_in_another_unicode_form(tmp_path: Path) -> None:
    make(tmp_path / unicodedata.normalize("NFD", "Köln.mp4"))
    assert find_files([tmp_path], exclude=[unicodedata.normalize("NFC", "Köln*")]).files == ()


def test_a_recording_given_by_name_brings_its_subtitles(samples: Path) -> None:
    (friday,) = find_files([samples / "friday.mp4"]).files
    assert [sidecar.name for sidecar in friday.sidecars] == ["friday.vtt"]
    assert friday.size == (samples / "friday.mp4").stat().st_size


def test_a_transcript_given_alone_stands_alone_and_with_its_recording_belongs_to_it(samples: Path) -> None:
    (alone,) = find_files([samples / "friday.vtt"]).files
    assert alone.kind == "transcript"
    (together,) = find_files([samples / "friday.vtt", samples / "friday.mp4"]).files
    assert together.kind == "media" and len(together.sidecars) == 1


def test_a_file_given_by_name_is_taken_whatever_its_suffix(tmp_path: Path) -> None:
    odd = make(tmp_path / "recording.bin")
    hidden = make(tmp_path / ".hidden.mp4")
    assert names(find_files([odd, hidden])) == [".hidden.mp4", "recording.bin"]
    assert names(find_files([tmp_path])) == []


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    for name in (".trash/a.mp4", "._b.mp4", "c.mp4"):
        make(tmp_path / name)
    assert names(find_files([tmp_path])) == ["c.mp4"]


def test_an_empty_folder_gives_nothing_and_no_problem(tmp_path: Path) -> None:
    assert find_files([tmp_path]) == Findings((), (), (), (tmp_path,))


def test_a_path_that_does_not_exist_is_a_problem_that_names_it(tmp_path: Path) -> None:
    make(tmp_path / "there.mp4")
    findings = find_files([tmp_path / "gone.mp4", tmp_path])
    assert names(findings) == ["there.mp4"]
    ((path, reason),) = findings.problems
    assert path.name == "gone.mp4" and "gone.mp4" in reason and "check the path" in reason


def test_overlapping_paths_and_dots_give_each_file_once(tmp_path: Path) -> None:
    video = make(tmp_path / "sub" / "a.mp4")
    paths = [tmp_path, tmp_path / "sub", video, tmp_path / "sub" / ".." / "sub" / "a.mp4"]
    (found,) = find_files(paths).files
    assert found.path == video


def test_two_videos_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    make(tmp_path / "one" / "a.mp4")
    make(tmp_path / "two" / "a.mp4")
    assert names(find_files([tmp_path])) == ["a.mp4", "a.mp4"]


def test_names_with_spaces_quotes_newlines_and_dots_are_found(tmp_path: Path) -> None:
    odd = [
        "two words.mp4",
        'it\'s "quoted".mp4',
        "two\nlines.mp4",
        "a..b.mp4",
        "-rf.mp4",
        "100%.mp4",
        "日本.mp4",
    ]
    for name in odd:
        make(tmp_path / name)
    assert sorted(names(find_files([tmp_path]))) == sorted(odd)
    assert "\n" not in printable(tmp_path / "two\nlines.mp4")


def test_names_that_are_not_utf8_are_found_and_can_be_shown(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.mp4"
    make(Path(os.fsdecode(raw)))
    (found,) = find_files([tmp_path]).files
    assert os.fsencode(found.path) == raw
    assert printable(found.path).encode("utf-8").endswith(b"caf\\xe9.mp4")


def test_a_name_of_4000_characters_is_a_problem_with_a_remedy(tmp_path: Path) -> None:
    make(tmp_path / "ok.mp4")
    findings = find_files([tmp_path / ("n" * 4000), tmp_path / "ok.mp4"])
    assert names(findings) == ["ok.mp4"]
    ((_, reason),) = findings.problems
    assert "too long" in reason and "rename" in reason and len(reason) < 400


def test_a_null_byte_in_a_name_is_a_problem() -> None:
    ((_, reason),) = find_files([Path("a\0b.mp4")]).problems
    assert "check the path" in reason


def test_a_link_that_leads_back_up_ends_with_a_note(tmp_path: Path) -> None:
    make(tmp_path / "a" / "video.mp4")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self.mp4").symlink_to(tmp_path / "a" / "self.mp4")
    findings = find_files([tmp_path])
    assert names(findings) == ["video.mp4"]
    assert {path.name for path, _ in findings.notes} == {"up", "self.mp4"}
    assert findings.problems == ()


def test_a_link_to_itself_takes_no_recording_its_subtitles(tmp_path: Path) -> None:
    make(tmp_path / "talk.mp4")
    make(tmp_path / "talk.srt")
    (tmp_path / "loop.srt").symlink_to("loop.srt")
    ((found,), notes) = find_files([tmp_path]).files, find_files([tmp_path]).notes
    assert found.sidecars == (tmp_path / "talk.srt",)
    assert [path.name for path, _ in notes] == ["loop.srt"]


def test_links_are_followed_once_and_the_file_itself_is_preferred(tmp_path: Path) -> None:
    outside = make(tmp_path / "store" / "far.mp4")
    inside = make(tmp_path / "tree" / "near.mp4")
    (tmp_path / "tree" / "a-link-to-near.mp4").symlink_to(inside)
    (tmp_path / "tree" / "b.mp4").symlink_to(outside)
    (tmp_path / "tree" / "c.mp4").symlink_to(outside)
    findings = find_files([tmp_path / "tree"])
    assert names(findings) == ["b.mp4", "near.mp4"]
    assert findings.problems == ()


def test_a_folder_reached_by_a_link_too_is_known_by_its_own_name(tmp_path: Path) -> None:
    make(tmp_path / "real" / "v.mp4")
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    (found,) = find_files([tmp_path]).files
    assert found.path == tmp_path / "real" / "v.mp4"


def test_a_broken_link_to_a_video_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "lost.mp4").symlink_to(tmp_path / "nowhere")
    (tmp_path / "lost.txt").symlink_to(tmp_path / "nowhere")
    ((path, reason),) = find_files([tmp_path]).problems
    assert path.name == "lost.mp4" and "link" in reason


def test_what_may_not_be_read_is_a_problem_with_a_remedy_and_the_rest_goes_on(open_folder: Path) -> None:
    make(open_folder / "fine.mp4")
    make(open_folder / "secret.mp4").chmod(0)
    make(open_folder / "closed" / "inside.mp4")
    (open_folder / "closed").chmod(0)
    try:
        with as_nobody():
            findings = find_files([open_folder])
    finally:
        (open_folder / "closed").chmod(0o755)
    assert names(findings) == ["fine.mp4"]
    assert {path.name for path, _ in findings.problems} == {"secret.mp4", "closed"}
    assert all("permission" in reason and "chmod" in reason for _, reason in findings.problems)


def test_a_pipe_is_no_video(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    assert names(find_files([tmp_path])) == []
    ((_, reason),) = find_files([tmp_path / "pipe.mp4"]).problems
    assert "neither a file nor a folder" in reason


def test_typescript_is_no_transport_stream(tmp_path: Path) -> None:
    make(tmp_path / "index.ts", "export const answer = 42")
    (tmp_path / "broadcast.ts").write_bytes(b"\x47" + bytes(187))
    assert names(find_files([tmp_path])) == ["broadcast.ts"]


@pytest.mark.slow
def test_folders_deeper_than_the_call_stack_are_searched(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for _ in range(1500):
        if len(folder) + 20 > os.pathconf(tmp_path, "PC_PATH_MAX"):
            break
        folder += "/d"
        Path(folder).mkdir()
    video = make(Path(folder) / "v.mp4")
    try:
        assert names(find_files([tmp_path])) == ["v.mp4"]
    finally:  # shutil.rmtree, which pytest calls, is not up to it
        video.unlink()
        while folder != str(tmp_path):
            Path(folder).rmdir()
            folder = folder[:-2]


def test_the_content_hash_is_that_of_all_bytes(tmp_path: Path) -> None:
    data = os.urandom(3_000_001)
    (tmp_path / "a").write_bytes(data)
    assert content_hash(tmp_path / "a") == blake2b(data, digest_size=16).hexdigest()


def test_where_links_are_not_followed_subtitles_behind_links_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nA secret.\n")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "talk.mp4").write_bytes(b"x")
    (tmp_path / "videos" / "talk.srt").symlink_to(tmp_path / "secret.srt")
    (found,) = find_files([tmp_path / "videos"], follow=False).files
    assert found.sidecars == ()
    (found,) = find_files([tmp_path / "videos"]).files
    assert len(found.sidecars) == 1
