"""Plans carried out on real files, in this process, with encoders that are quick and have known meaning."""

from __future__ import annotations

import os
import shutil
import signal
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.stream_runs import pictures_run, words_run

from whenabouts.index.build import build
from whenabouts.index.plan import Settings, make_plan
from whenabouts.index.progress import Summary
from whenabouts.index.reading import FrameBatch
from whenabouts.index.records import VideoRecord
from whenabouts.index.store import Store
from whenabouts.index.transcripts import Speech, Transcripts
from whenabouts.index.workers import ReaderPool
from whenabouts.video.cue import Cue, Word
from whenabouts.video.cues import CueTrack
from whenabouts.video.files import find_files


class Mean:
    """An encoder whose vectors say the mean colour of a picture, or a checksum of a text."""

    name, fingerprint, dimension, image_size = "mean", "mean@1", 4, 48

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if any("unspeakable" in text for text in texts):
            raise RuntimeError("the encoder choked")
        raw = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=4) for text in texts]
        return self._unit(np.array(raw).reshape(-1, 4))

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        return self._unit(np.array([[*image.mean(axis=(0, 1)), 1.0] for image in images]))

    def _unit(self, raw: NDArray[Any]) -> NDArray[np.float32]:
        unit: NDArray[np.float32] = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
        return unit


class Indexer:
    """A corpus and the folder it is made of."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder = folder
        self.store = Store.open(place, create=True)
        self.kept = Transcripts(str(place))
        self.heard: list[Path] = []

    def run(
        self,
        *,
        vision: bool = False,
        text: bool = True,
        shots: bool = False,
        transcribe: str = "",
        retry: bool = False,
        settings: Settings | None = None,
        encoder: Mean | None = None,
    ) -> Summary:
        mean = encoder or Mean()
        runs = [words_run("mean@1", mean) if text else words_run("l")]
        runs += [pictures_run("mean@1", mean, 0.5, 48)] if vision else []
        for run in runs:
            self.store.add_stream(run.info)
        settings = replace(settings or Settings(), shots=shots, transcribe=transcribe)
        files = find_files([self.folder])
        plan = make_plan(files, self.store.videos(), settings, runs, retry=retry)
        speech = Speech(self.kept, transcribe, self._recognise)
        summary = Summary.before(plan)
        build(self.store, plan, speech, summary, processes=1)
        return summary

    def _recognise(
        self,
        path: Path,
        model: str,
        *,
        marked_as: str | None = None,
        progress: Callable[[float], None] | None = None,
        **_: Any,
    ) -> CueTrack:
        self.heard.append(path)
        if progress is not None:
            progress(1.0)
        words = (Word(0.5, 0.9, "Hello"), Word(1.0, 1.5, "world."))
        return CueTrack((Cue(0.5, 1.5, "Hello world.", words),), f"speech:{model}", "en", ("a note",))

    def row(self, name: str) -> VideoRecord:
        (found,) = [record for record in self.store.videos() if Path(record.path).name == name]
        return found

    def clips(self, stream: str, name: str) -> list[tuple[float, float, str]]:
        block = self.store.clips_of(stream, [self.row(name).video_id])
        return list(zip(block.start.tolist(), block.end.tolist(), block.text, strict=True))


@pytest.fixture()
def indexer(tmp_path: Path) -> Indexer:
    (tmp_path / "videos").mkdir()
    return Indexer(tmp_path / "videos", tmp_path / "corpus")


@pytest.fixture()
def take(samples: Path, indexer: Indexer) -> Callable[..., Path]:
    """Copy a sample file into the folder."""

    def copy(name: str, to: str = "") -> Path:
        target = indexer.folder / (to or name)
        shutil.copy(samples / name, target)
        return target

    return copy


def transcript(*lines: str) -> str:
    cues = [f"00:00:{2 * n:02d}.000 --> 00:00:{2 * n + 1:02d}.500\n{line}\n" for n, line in enumerate(lines)]
    return "\n".join(["WEBVTT\n", *cues])


def make_video(path: Path, frames: int, rate: int = 4) -> None:
    """A video whose colour changes for good in its middle."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height = 160, 120
        for number in range(frames):
            shade = 40 if number < frames // 2 else 200
            image = np.full((120, 160, 3), shade, np.uint8)
            image[number % 100 : number % 100 + 8, :40] = 90
            for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)


def make_sounds(path: Path, languages: Sequence[str]) -> None:
    """A recording with a second of a sound track in each language."""
    import av

    with av.open(str(path), "w") as container:
        streams = [container.add_stream("aac", rate=16_000, layout="mono") for _ in languages]
        for stream, language in zip(streams, languages, strict=True):
            stream.metadata["language"] = language
        for stream in streams:
            frame = av.AudioFrame.from_ndarray(np.full((1, 16_000), 0.1, np.float32), "fltp", "mono")
            frame.sample_rate = 16_000
            for packet in (*stream.encode(frame), *stream.encode(None)):
                container.mux(packet)


def test_a_changed_video_keeps_its_id_and_nothing_of_its_old_content(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    make_video(indexer.folder / "a.mp4", 40)
    indexer.run(vision=True)
    before = indexer.row("a.mp4")
    assert before.shots
    take("bottle-detection.mp4", "a.mp4")
    summary = indexer.run()
    after = indexer.row("a.mp4")
    assert (summary.updated, summary.added) == (1, 0)
    assert after.video_id == before.video_id
    assert after.content_hash != before.content_hash
    assert after.shots is None
    assert set(after.streams) == {"subtitle"}
    assert indexer.clips("vision", "a.mp4") == []


def test_a_file_that_lost_its_second_sound_track_has_none_to_choose(indexer: Indexer) -> None:
    path = indexer.folder / "a.mkv"
    for languages, expected in ((["eng", "deu"], ["eng", "deu"]), (["eng"], None)):
        make_sounds(path, languages)
        indexer.run()
        assert indexer.row("a.mkv").metadata.get("sound_tracks") == expected
    assert "sound_track" not in indexer.row("a.mkv").metadata


def test_a_changed_video_keeps_its_id_even_when_the_run_is_killed_while_writing(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    path = take("friday.mp4", "a.mp4")
    indexer.run()
    first = indexer.row("a.mp4")
    take("nasa_13013.mp4", "a.mp4")
    crashed = replace(first, size=-1, modified_ns=0, content_hash="", streams={})
    indexer.store.put_records([crashed])
    indexer.run()
    assert [record.video_id for record in indexer.store.videos()] == [first.video_id]
    assert indexer.row("a.mp4").size == path.stat().st_size


def test_shots_are_kept_with_pictures_and_added_alone_later(indexer: Indexer) -> None:
    make_video(indexer.folder / "a.mp4", 40)
    indexer.run()
    assert indexer.row("a.mp4").shots is None
    indexer.run(shots=True)
    shots = indexer.row("a.mp4").shots
    assert shots is not None
    assert shots == pytest.approx([5.0], abs=0.3)
    make_video(indexer.folder / "b.mp4", 48)
    summary = indexer.run(vision=True)
    assert (summary.added, summary.updated) == (1, 1)
    assert indexer.row("b.mp4").shots == pytest.approx([6.0], abs=0.3)
    assert len(indexer.clips("vision", "a.mp4")) == 20


def test_reading_words_again_keeps_what_decoding_found_out(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    path = take("flower.webm")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    summary = indexer.run(vision=True)
    seen = indexer.row("flower.webm")
    assert len(summary.damaged) == 1
    assert seen.damage
    (indexer.folder / "flower.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nA flower.\n")
    indexer.run(vision=True)
    again = indexer.row("flower.webm")
    assert (again.damage, again.duration, again.shots) == (seen.damage, seen.duration, seen.shots)
    assert again.words == "sidecar:flower.srt"
    assert [text for _, _, text in indexer.clips("subtitle", "flower.webm")] == ["A flower."]


def test_the_language_of_words_goes_with_the_words(indexer: Indexer, take: Callable[..., Path]) -> None:
    take("flower.webm")
    words = indexer.folder / "flower.de.srt"
    words.write_text("1\n00:00:00,000 --> 00:00:01,000\nEine Blume.\n")
    indexer.run()
    assert indexer.row("flower.webm").language == "de"
    words.unlink()
    indexer.run()
    assert (indexer.row("flower.webm").words, indexer.row("flower.webm").language) == ("", "")


def test_a_recording_without_speech_is_listed_when_it_was_heard(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    path = take("bottle-detection.mp4")
    assert indexer.run().silent == [path]
    summary = indexer.run(transcribe="small")
    assert (indexer.row(path.name).words, summary.silent) == ("no sound", [path])
    assert not indexer.run(transcribe="small").silent


def test_what_a_person_says_outlives_new_subtitles(indexer: Indexer, take: Callable[..., Path]) -> None:
    take("friday.mp4")
    indexer.run(settings=Settings(metadata={"title": "Mine", "year": "1940"}))
    (indexer.folder / "friday.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nHildy!\n")
    indexer.run()
    assert indexer.row("friday.mp4").title == "Mine"
    assert indexer.row("friday.mp4").metadata["year"] == "1940"


@pytest.mark.slow
def test_speech_is_recognised_once_whatever_happens_to_file_and_encoder(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    path = take("frog.webm", "a.mp4")
    take("bottle-detection.mp4", "silent.mp4")
    indexer.run(text=False, transcribe="small")
    assert indexer.heard == [path]
    assert indexer.row("a.mp4").words == "speech:small"
    assert indexer.row("silent.mp4").words == "no sound"
    indexer.run(text=True)  # words get vectors, and nobody asks for speech
    assert indexer.row("a.mp4").words == "speech:small"
    assert [text for _, _, text in indexer.clips("subtitle", "a.mp4")] == ["Hello world."]
    moved = path.rename(path.with_name("b.mp4"))
    indexer.run(transcribe="small")
    indexer.store.put_records([replace(indexer.row("b.mp4"), state="failed", content_hash="", streams={})])
    indexer.run(transcribe="small", retry=True)
    assert indexer.row("b.mp4").words == "speech:small"
    assert indexer.heard == [path]
    indexer.run(transcribe="large")
    assert indexer.heard == [path, moved]
    assert indexer.row("b.mp4").words == "speech:large"


@pytest.mark.slow
def test_recognised_words_that_a_changed_film_loses_are_told_of(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    path = take("frog.webm")
    indexer.run(transcribe="small")
    path.write_bytes(path.read_bytes() + b"a better version")
    summary = indexer.run()
    assert (summary.updated, summary.not_recognised, indexer.row("frog.webm").words) == (1, [path], "")
    (note,) = summary.notes
    assert note.startswith(f"{path}: the words that were recognised before are lost; --transcribe")
    path.write_bytes(path.read_bytes() + b"another version")
    summary = indexer.run()
    assert (summary.not_recognised, summary.notes) == ([path], [])


def test_a_kept_transcript_comes_back_as_it_was_and_can_be_forgotten(tmp_path: Path) -> None:
    place = str(tmp_path)
    track = CueTrack((Cue(0.5, 1.5, "Hé 你好", (Word(0.5, 1.0, "Hé"),)),), "speech:m", "fr", ("a note",))
    Transcripts(place).keep("h1", "m", track)
    Transcripts(place).keep("h1", "m", track)
    Transcripts(place).keep("h2", "m", CueTrack((), "speech:m"))
    kept = Transcripts(place)
    assert kept.find("h1", "m") == kept.find("h1") == track
    assert kept.find("h1", "other") is None
    assert kept.find("h2") == CueTrack((), "speech:m")
    kept.forget(["h1"])
    assert Transcripts(place).find("h1") is None
    assert Transcripts(place).find("h2") is not None
    assert "你好".encode() not in b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())


def test_tracks_are_in_the_order_of_their_streams_and_the_tenth_is_not_the_second(tmp_path: Path) -> None:
    kept, sources = Transcripts(str(tmp_path)), [f"embedded:{number}" for number in range(2, 13)]
    kept.keep_tracks("h1", [CueTrack((Cue(0.0, 1.0, name),), name, "en") for name in reversed(sources)])
    assert [track.source for track in kept.tracks("h1")] == sources
    assert list(kept.languages_of_tracks()["h1"]) == sources


def test_what_another_process_stores_or_removes_is_seen_by_an_open_reader(tmp_path: Path) -> None:
    def tracks(*texts: str) -> list[CueTrack]:
        return [CueTrack((Cue(0.0, 1.0, text),), f"file:{text}", "") for text in texts]

    other, reader = Transcripts(str(tmp_path)), Transcripts(str(tmp_path))
    other.keep_tracks("h1", tracks("one", "two"))
    assert reader.tracks("h1") == tracks("one", "two")
    other.keep_tracks("h2", tracks("three", "two"))
    reader.keep_tracks("h2", ())
    assert other.tracks("h2") == []
    other.forget(["h1"])
    assert reader.tracks("h1") == []


@pytest.mark.slow
def test_a_file_that_an_encoder_cannot_take_costs_only_itself(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    class Blind(Mean):
        def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
            if images[0].mean() < 100:
                raise RuntimeError("out of memory")
            return super().encode_images(images)

    make_video(indexer.folder / "dark.mp4", 40)
    take("frog.webm", "z.webm")
    (indexer.folder / "a.vtt").write_text(transcript("unspeakable"))
    (indexer.folder / "b.vtt").write_text(transcript("fine"))
    summary = indexer.run(vision=True, encoder=Blind())
    assert {path.name: why for path, why in summary.failed} == {
        "a.vtt": "RuntimeError: the encoder choked",
        "dark.mp4": "RuntimeError: out of memory",
    }
    assert indexer.row("b.vtt").state == indexer.row("z.webm").state == "done"
    assert indexer.row("dark.mp4").error == "RuntimeError: out of memory"
    assert indexer.run(vision=True, retry=True).added == 1  # the encoder sees again; words still fail
    assert [path.name for path, _ in indexer.run(vision=True, retry=True).failed] == ["a.vtt"]


def test_a_video_that_breaks_stays_searchable_as_it_was(indexer: Indexer, take: Callable[..., Path]) -> None:
    path = take("friday.mp4")
    take("friday.vtt")
    indexer.run()
    before = indexer.clips("subtitle", "friday.mp4")
    path.write_bytes(b"")
    for options in ({}, {"retry": True}):
        summary = indexer.run(**options)  # type: ignore[arg-type]
        assert len(summary.failed) == 1
        assert "empty" in summary.failed[0][1]
        assert indexer.row("friday.mp4").state == "failed"
        assert indexer.clips("subtitle", "friday.mp4") == before
    take("friday.mp4")
    assert indexer.run().updated == 1
    assert indexer.row("friday.mp4").state == "done"
    assert indexer.row("friday.mp4").error == ""


def test_a_transcript_gives_way_to_its_recording_once_that_can_be_read(
    indexer: Indexer, take: Callable[..., Path]
) -> None:
    take("friday.vtt")
    indexer.run()
    (indexer.folder / "friday.mp4").write_bytes(b"broken")
    indexer.run()
    assert indexer.clips("subtitle", "friday.vtt")
    take("friday.mp4")
    indexer.run()
    assert [Path(record.path).name for record in indexer.store.videos()] == ["friday.mp4"]
    assert indexer.store.clip_counts("subtitle").keys() == {indexer.row("friday.mp4").video_id}


def test_two_videos_of_one_name_live_side_by_side(indexer: Indexer, take: Callable[..., Path]) -> None:
    for folder in ("one", "two", "three"):
        (indexer.folder / folder).mkdir()
    take("friday.mp4", "one/a.mp4")
    indexer.run()
    take("friday.mp4", "two/a.mp4")  # what one/a.mp4 was, under an id that one/a.mp4 keeps
    take("nasa_13013.mp4", "one/a.mp4")
    take("frog.webm", "three/a.mp4")
    indexer.run()
    rows = {Path(record.path).parent.name: record for record in indexer.store.videos()}
    assert rows.keys() == {"one", "two", "three"}
    assert rows["two"].video_id == f"{rows['one'].video_id}-2"


@pytest.mark.slow
def test_the_memory_of_this_process_does_not_grow_with_a_video_beyond_its_vectors(
    indexer: Indexer,
) -> None:
    peaks = []
    for number, frames in enumerate((200, 2400)):
        make_video(indexer.folder / f"{number}.mp4", frames)
        tracemalloc.start()
        indexer.run(vision=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    clips = 1200
    pictures = clips * 48 * 64 * 3  # some 11 MB, if they were all kept
    assert peaks[1] - peaks[0] < pictures / 4, peaks
    assert len(indexer.clips("vision", "1.mp4")) == clips


@pytest.mark.slow
def test_a_reader_that_dies_in_mid_file_costs_that_file_only(
    indexer: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_video(indexer.folder / "a.mp4", 400)
    for number in range(3):
        (indexer.folder / f"{number}.vtt").write_text(transcript(f"line {number}"))

    class Murderous(ReaderPool):
        def run(self, tasks: Any) -> Any:
            for message in super().run(tasks):
                if isinstance(getattr(message, "content", None), FrameBatch):
                    os.kill(self._workers[0].process.pid, signal.SIGKILL)
                    self._workers[0].process.wait()
                yield message

    monkeypatch.setattr("whenabouts.index.executor.ReaderPool", Murderous)
    summary = indexer.run(vision=True)
    assert [path.name for path, _ in summary.failed] == ["a.mp4"]
    assert "SIGKILL" in summary.failed[0][1]
    assert summary.added == 3
    monkeypatch.undo()
    assert indexer.run(vision=True, retry=True).added == 1
    assert {record.state for record in indexer.store.videos()} == {"done"}
    assert len(indexer.store.videos()) == 4


@pytest.mark.parametrize("seconds", [9_300_000_000, -9_300_000_000, 15_000_000_000])
def test_a_date_out_of_range_costs_nothing_but_a_note(
    indexer: Indexer, take: Callable[..., Path], seconds: int
) -> None:
    path, other = take("friday.mp4"), take("frog.webm")
    os.utime(path, (0, seconds))
    if path.stat().st_mtime != seconds:
        pytest.skip("this file system keeps no such dates")
    findings = find_files([indexer.folder])
    assert "dated in the year" in findings.notes[0][1]
    summary = indexer.run()
    assert (summary.added, summary.failed) == (2, [])
    assert {Path(row.path) for row in indexer.store.videos()} == {path, other}
    assert indexer.run().unchanged == 2


def test_rows_that_cannot_be_made_of_one_file_cost_that_file_only(
    indexer: Indexer, take: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    take("friday.mp4")
    take("frog.webm")
    settings = Settings(metadata_of={"friday.mp4": {"title": "\ud800 half a letter", "deep": {1: 2}}})
    assert indexer.run(settings=settings).failed == []
    assert "half a letter" in indexer.row("friday.mp4").title
    take("nasa_13013.mp4")
    monkeypatch.setattr("whenabouts.index.build._record", damaged_record(indexer))
    take("bottle-detection.mp4")
    summary = indexer.run()
    assert [path.name for path, _ in summary.failed] == ["bottle-detection.mp4"]
    assert "OverflowError" in summary.failed[0][1] or "too large" in summary.failed[0][1]
    assert indexer.row("nasa_13013.mp4").state == "done"
    assert indexer.row("bottle-detection.mp4").state == "failed"


def damaged_record(indexer: Indexer) -> Callable[..., VideoRecord]:
    """The maker of ledger rows, which makes one that no table can hold of one file."""
    from whenabouts.index import build as building

    made = building._record

    def make(work: Any, *others: Any) -> VideoRecord:
        row = made(work, *others)
        return replace(row, modified_ns=2**70) if "bottle" in row.path else row

    return make


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_in_place_of_an_indexed_file_stops_nothing(
    indexer: Indexer, take: Callable[..., Path], kind: str
) -> None:
    path = take("friday.mp4")
    indexer.run()
    take("friday.mp4", "copy.mp4")  # its content is looked for under the name that it was indexed by
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    started = signal.alarm(60)
    summary = indexer.run()
    signal.alarm(started)
    assert summary.failed == []
    assert {Path(row.path).name for row in indexer.store.videos() if row.state == "done"} >= {"copy.mp4"}


def test_a_file_that_was_swapped_for_a_link_after_the_plan_is_not_read(
    indexer: Indexer, take: Callable[..., Path], tmp_path: Path
) -> None:
    path = take("friday.mp4")
    (tmp_path / "secret.mp4").write_bytes((indexer.folder / "friday.mp4").read_bytes())
    runs = [words_run("mean@1", Mean())]
    indexer.store.add_stream(runs[0].info)
    plan = make_plan(find_files([indexer.folder]), [], Settings(), runs)
    path.unlink()
    path.symlink_to(tmp_path / "secret.mp4")
    summary = Summary.before(plan)
    build(indexer.store, plan, Speech(indexer.kept, "", indexer._recognise), summary, processes=1)
    assert "another file was put in its place" in summary.failed[0][1]
