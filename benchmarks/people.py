"""What telling people apart costs an hour, and how many turns the names in subtitles give.

`python -m benchmarks.people TRANSCRIPTS FILM OUT` reads all subtitle files of a folder, and hears a film's
speech with a model of small random weights, looks at rendered frames with planted models: of voices and faces
only the plumbing is measured, real networks come on top. Needs the package's tests beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from tests.planted_people import BLUE, RED, bank_model, face_models, picture, voice_encoder

from whenabouts.streams.speaker import voice_turns
from whenabouts.video.cues import read_cue_file
from whenabouts.video.faces import FaceFinder
from whenabouts.video.sound import sound_pieces
from whenabouts.video.speakers import turns_of
from whenabouts.video.voices import RATE, Voices

_SECONDS_OF_SPEECH, _FRAMES = 600, 200


def main(arguments: list[str]) -> int:
    """Measure and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("transcripts", "film", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measured = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": describe_machine("onnxruntime", "opencv-python-headless"),
            "names": _names(options.transcripts),
            "voices": _voices(options.film, Path(folder)),
            "faces": _faces(Path(folder)),
        }
    (options.out / "people.json").write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(measured, indent=2))
    return 0


def _names(transcripts: Path) -> dict[str, Any]:
    tracks = [read_cue_file(path).cues for path in sorted(transcripts.glob("*.vtt"))]
    started = time.process_time()
    turns = [turns_of(cues) for cues in tracks]
    hours = sum(cues[-1].end for cues in tracks) / 3600
    marks = Counter(name for cues in tracks for cue in cues for _, name in cue.speakers if name)
    return {
        "files": len(tracks),
        "files_with_names": sum(bool(own) for own in turns),
        "hours": round(hours, 1),
        "marks": marks.total(),
        "names": len(marks),
        "turns": sum(map(len, turns)),
        "processor_seconds_an_hour": round((time.process_time() - started) / hours, 5),
    }


def _voices(film: Path, folder: Path) -> dict[str, Any]:
    encoder = voice_encoder(str(bank_model(folder / "voices.onnx", width=192)))
    speech = next(iter(sound_pieces(film, 30.0))).samples
    pieces = round(_SECONDS_OF_SPEECH * RATE / len(speech))
    started = time.process_time()
    heard = [encoder.voices(speech, at * len(speech) / RATE) for at in range(pieces)]
    encoded = time.process_time()
    voices = Voices(*(np.concatenate(columns) for columns in zip(*heard, strict=True)))
    voice_turns(voices, encoder.same_voice)
    hours = pieces * len(speech) / RATE / 3600
    return {
        "seconds_of_sound": round(hours * 3600),
        "windows": len(voices.start),
        "silero_and_banks_seconds_an_hour": round((encoded - started) / hours, 1),
        "clustering_seconds_an_hour": round((time.process_time() - encoded) / hours, 1),
    }


def _faces(folder: Path) -> dict[str, Any]:
    finder = FaceFinder(face_models(folder / "faces"))
    image = np.kron(picture([RED, BLUE]), np.ones((2, 2, 1), np.uint8))
    finder.faces([image])
    started = time.process_time()
    finder.faces([image] * _FRAMES)
    return {
        "seconds_an_hour_of_one_frame_a_second": round((time.process_time() - started) / _FRAMES * 3600, 1)
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
