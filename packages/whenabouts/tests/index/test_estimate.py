"""What a plan says a run takes: from a timed sample of its files, of what each stream reads of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.stream_runs import pictures_run, words_run
from tests.streams.written_film import write_film

from whenabouts.index import estimate as estimating
from whenabouts.index.estimate import Decoded, Estimate, SampleTask
from whenabouts.index.plan import Plan, Settings, make_plan
from whenabouts.index.reading import FrameBatch, SoundBatch
from whenabouts.index.records import StreamInfo, VideoRecord
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Cost, Reads, Stream, StreamRun
from whenabouts.video.files import content_hash, find_files
from whenabouts.video.shots import built_in

SENTENCE = "We speak of the weather and of nothing else for as long as it takes"


class Clock:
    """A processor's time that passes only where a test works, so that no slow machine fails a test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def process_time(self) -> float:
        return self.seconds


CLOCK = Clock()


def work_for(seconds: float) -> None:
    CLOCK.seconds += seconds


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decoded takes no time: the readers' processes do not work."""
    monkeypatch.setattr(estimating, "time", CLOCK)
    real = estimating._samples

    def samples(tasks: Sequence[SampleTask]) -> Iterator[tuple[SampleTask, Any]]:
        for task, content in real(tasks):
            yield task, replace(content, spent=0.0) if isinstance(content, Decoded) else content

    monkeypatch.setattr(estimating, "_samples", samples)


class BusyEncoder:
    """Encodes nothing, and takes so many processor seconds for a letter."""

    name, fingerprint, dimension = "busy", "busy@1", 4

    def __init__(self, seconds_a_letter: float) -> None:
        self.seconds_a_letter = seconds_a_letter
        self.letters = 0

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        letters = sum(map(len, texts))
        self.letters += letters
        work_for(letters * self.seconds_a_letter)
        return np.tile(np.array([1, 0, 0, 0], np.float32), (len(texts), 1))


class Watcher(Stream):
    """Keeps the number of frames, and works 20 ms on each that is another shade than the one before."""

    name, title = "watcher", "shades"
    frames = 0

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> Any:
        assert isinstance(batch, FrameBatch)
        shade = kept[-1] if kept else None
        for image in batch.images:
            self.frames += 1
            if shade is None or abs(float(image.mean()) - shade) > 4:
                work_for(0.02)
            shade = float(image.mean())
        return shade


def watching(stream: Watcher, declared: float = 1e6) -> StreamRun:
    reads = Reads(frames=FrameSettings(2.0, 32))
    info = StreamInfo("watcher", "eyes", "eyes@1", 0)
    return StreamRun(stream, info, None, reads, Cost(seconds=declared, varies=True))


def talk(folder: Path, name: str, minutes: int) -> Path:
    """A transcript with a sentence every five seconds."""
    rng = random.Random(name)
    cues = [
        f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}.000 --> {at // 3600:02}:{at // 60 % 60:02}:"
        f"{at % 60 + 4:02}.000\n{' '.join(rng.sample(SENTENCE.split(), 12))}."
        for at in range(0, 60 * minutes, 5)
    ]
    path = folder / name
    path.write_text("WEBVTT\n\n" + "\n\n".join(cues) + "\n")
    return path


def planned(
    paths: Path | Iterable[Path],
    runs: Sequence[StreamRun] = (words_run(),),
    transcribe: str | None = None,
    ledger: Sequence[VideoRecord] = (),
) -> Plan:
    found = find_files([paths] if isinstance(paths, Path) else list(paths))
    return make_plan(found, ledger, Settings(transcribe=transcribe), runs)


def costing(run: StreamRun, seconds: float, *, varies: bool = False) -> StreamRun:
    return replace(run, cost=Cost(seconds=seconds, bytes=1e6, varies=varies))


def test_words_are_timed_on_a_twentieth_of_them(tmp_path: Path) -> None:
    for number in range(3):
        talk(tmp_path, f"{number}.vtt", 60)
    letters = 3 * 720 * len(SENTENCE) * 12 / 15
    encoder = BusyEncoder(20e-6)
    run = costing(words_run(encoder=encoder), 1e6, varies=True)
    estimate = planned(tmp_path, [run]).estimate
    # Each letter is encoded twice, in its passage and in the minute around it.
    assert sum(estimate.files) == pytest.approx(2 * letters * 20e-6, rel=0.1)
    assert encoder.letters < 2 * 0.06 * letters


def test_a_corpus_too_small_to_time_costs_what_is_declared(tmp_path: Path) -> None:
    talk(tmp_path, "a.vtt", 10)
    encoder = BusyEncoder(1.0)
    estimate = planned(tmp_path, [costing(words_run(encoder=encoder), 7200.0, varies=True)]).estimate
    assert encoder.letters == 0
    assert sum(estimate.files) == pytest.approx(120 * len(SENTENCE) * 12 / 15 / 50_000 * 7200, rel=0.4)


def test_a_sample_that_fails_leaves_what_is_declared(tmp_path: Path) -> None:
    class Broken(BusyEncoder):
        def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
            raise ValueError("no memory")

    for number in range(3):
        talk(tmp_path, f"{number}.vtt", 60)
    run = costing(words_run(encoder=Broken(0.0)), 100.0)
    declared = planned(tmp_path, [run]).estimate
    assert planned(tmp_path, [costing(run, 100.0, varies=True)]).estimate == declared


@pytest.mark.slow
def test_frames_that_differ_cost_and_those_that_stand_do_not(tmp_path: Path) -> None:
    def shade(value: int) -> NDArray[np.uint8]:
        return np.full((64, 64, 3), value, np.uint8)

    standing = write_film(tmp_path / "standing.mp4", lambda number: shade(90), 240, rate=1)
    moving = write_film(tmp_path / "moving.mp4", lambda number: shade(60 + number % 4 * 20), 240, rate=1)
    shots = 240 / 3600 * built_in.SECONDS_AN_HOUR
    seconds = {}
    for path in (standing, moving):
        stream = Watcher()
        seconds[path] = sum(planned(path, [watching(stream)]).estimate.files)
        assert 0 < stream.frames <= 16, "a tenth of 120 frames, and one that is read twice"
    # A first frame and six that follow; half the work of one more may have been missed.
    assert seconds[moving] - shots == pytest.approx(120 * 0.02 * 6.5 / 6, rel=0.01)
    assert seconds[standing] - shots == pytest.approx(120 * 0.02 * 0.5 / 6, rel=0.01)


def test_frames_are_not_read_where_the_videos_are_short(samples: Path) -> None:
    stream = Watcher()
    estimate = planned(samples / "friday.mp4", [watching(stream, declared=7200.0)]).estimate
    assert stream.frames == 0
    assert sum(estimate.files) == pytest.approx(2 * 3600 * estimate.hours, rel=0.2)


def test_hours_count_only_for_what_a_stream_reads(tmp_path: Path, samples: Path) -> None:
    shutil.copy(samples / "friday.mp4", tmp_path)
    runs = [words_run(), costing(pictures_run(), 3600.0)]
    alone = sum(planned(tmp_path, runs, transcribe="tiny").estimate.files)
    talk(tmp_path, "lecture.vtt", 300)
    together = planned(tmp_path, runs, transcribe="tiny").estimate
    assert together.hours > 5
    assert sum(together.files) == pytest.approx(alone, abs=0.2), "a transcript has no pictures and no sound"


def test_speech_is_counted_where_there_is_sound_and_no_subtitles(
    tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_speech(path: Path, **options: Any) -> float:
        runs = [costing(words_run(), 0.0)]
        heard, not_heard = (
            sum(planned(path, runs, transcribe=model, **options).estimate.files) for model in ("tiny", None)
        )
        return heard - not_heard

    silent = write_film(tmp_path / "silent.mp4", lambda number: np.full((64, 64, 3), 9, np.uint8), 20, rate=1)
    bare = Path(shutil.copy(samples / "nasa_audio_only.mp3", tmp_path))
    hours = planned(bare).estimate.hours
    assert of_speech(bare) == pytest.approx(200 * hours, rel=0.01)
    assert of_speech(silent) == 0
    assert of_speech(samples / "nasa_audio_only.mp3") == 0, "subtitles lie beside it"
    status = bare.stat()
    earlier = VideoRecord(
        "a",
        str(bare),
        size=status.st_size,
        modified_ns=status.st_mtime_ns,
        content_hash=content_hash(bare),
        streams={"subtitle": "older@1"},
        words="speech:tiny",
    )
    assert planned(bare, transcribe="tiny", ledger=[earlier]).work, "its words are encoded anew"
    assert of_speech(bare, ledger=[earlier]) == 0, "and what was recognised is kept"


def test_a_plan_says_how_much_speech_is_recognised_or_not(tmp_path: Path, samples: Path) -> None:
    bare = Path(shutil.copy(samples / "nasa_audio_only.mp3", tmp_path))
    unheard, heard = (planned(bare, transcribe=model) for model in (None, "tiny"))
    assert unheard.to_json()["speech_hours"] == pytest.approx(unheard.estimate.hours, abs=1e-4)
    assert (unheard.to_json()["speech_model"], heard.to_json()["speech_model"]) == (None, "tiny")
    assert any("sound without subtitles: to search what is said, " in line for line in unheard.lines())
    assert any(line.endswith("sound without subtitles: to be recognised") for line in heard.lines())
    assert unheard.estimate.before < heard.estimate.before, "only a model that is used has to be loaded"
    subtitled = planned(samples / "nasa_audio_only.mp3")
    assert not any("subtitles" in line for line in subtitled.lines())


def test_a_piece_of_the_sound_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wave

    with wave.open(str(tmp_path / "long.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(2 * 8000 * 60 * 25))
    heard = []

    def recognise(piece: Any, model: str) -> None:
        heard.append((round(piece.start), round(len(piece.samples) / 16_000)))
        work_for(len(piece.samples) / 16_000 * 0.003)

    monkeypatch.setattr("whenabouts.index.estimate.try_out", recognise)
    estimate = planned(tmp_path, [costing(words_run(), 0.0)], transcribe="tiny").estimate
    timed = [(start, seconds) for start, seconds in heard if seconds > 1]
    assert len(timed) == 2 and all(seconds <= 60 for _, seconds in timed)
    first, second = sorted(start for start, _ in timed)
    assert first < second <= 660
    assert sum(estimate.files) == pytest.approx(25 * 60 * 0.003, rel=0.05)


def test_the_estimate_survives_what_is_no_media(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"\0" * 1000)
    shutil.copy(samples / "friday.mp4", tmp_path / "a.mp4")
    assert 0.0005 < planned(tmp_path).estimate.hours < 0.01
    (tmp_path / "a.mp4").unlink()
    assert planned(tmp_path).estimate.hours == 0.0


def test_what_is_not_probed_counts_by_its_bytes(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        shutil.copy(samples / "friday.mp4", tmp_path / f"{number}.mp4")
        with (tmp_path / f"{number}.mp4").open("ab") as file:
            file.write(bytes([0, 0, 0, 9]) + b"free" + bytes([number]))
    all_probed = planned(tmp_path).estimate
    monkeypatch.setattr(estimating, "_PROBED_FILES", 1)
    assert planned(tmp_path).estimate.hours == pytest.approx(all_probed.hours, rel=0.01)
    assert planned(tmp_path).estimate.files == pytest.approx(all_probed.files, rel=0.01)


def test_hours_of_transcripts_are_those_of_their_last_times(tmp_path: Path) -> None:
    times = "00:01.000 --> 00:03.000\nOne\n\n03:06:57.000 --> 03:07:00.000\nTwo\n"
    (tmp_path / "talk.vtt").write_text(f"WEBVTT\n\n{times}")
    assert planned(tmp_path).estimate.hours == pytest.approx(3 + 7 / 60)


def test_a_corpus_that_grows_by_less_than_a_tenth_is_not_measured_anew(tmp_path: Path) -> None:
    talk(tmp_path, "a.vtt", 10)
    there = [VideoRecord(f"v{number}", f"/elsewhere/{number}.mp4") for number in range(20)]
    assert planned(tmp_path).estimate.after > 2
    assert planned(tmp_path, ledger=there).estimate.after == 0


def test_nothing_to_do_takes_no_time(tmp_path: Path) -> None:
    assert planned(tmp_path).estimate == Estimate()
    assert planned(tmp_path).to_json()["estimated_processor_seconds"] == 0


def test_the_plan_names_processor_time_and_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whenabouts.index.plan.available_cores", lambda: 4)
    monkeypatch.setattr("whenabouts.index.estimate.available_cores", lambda: 4)
    talk(tmp_path, "a.vtt", 10)
    plan = replace(planned(tmp_path), estimate=Estimate(1.5, (300.0, 100.0), 2.0, 10.0, 3e6))
    assert plan.lines()[1] == (
        "about 1.50 hours of recordings, 6 min 52 s of processor time (at best 1 min 52 s on 4 cores), "
        "3.0 MB of disk"
    )
    told = plan.to_json()
    assert (told["estimated_processor_seconds"], told["estimated_seconds"]) == (412, 112)
