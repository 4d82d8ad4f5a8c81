"""What a plan says a run takes, against the processor time that the run takes.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.plan [--only NAME ...] [--out FILE]

Each corpus is planned (`index --dry-run --json`) and indexed by the command line in processes of their own;
processor time is user and system time with all children, from the start of the command. Read aloud are
transcripts, by espeak-ng; slides are drawn of their words and change every 15 to 45 s; the film is a video of
`samples` that is repeated, so that every frame differs.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from benchmarks.ingest import repeated
from benchmarks.machine import describe_machine
from PIL import Image, ImageDraw, ImageFont

from whenabouts.video.cues import read_cue_file

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("WHENABOUTS_SHARED_DATA", ROOT.parent / "shared" / "data"))
GOAL = 1.5
SIZE, FRAMES_A_SECOND = (1280, 720), 5
SHORTEST_SLIDE, LONGEST_SLIDE = 15.0, 45.0


def transcripts(count: int) -> list[Path]:
    """So many of the shared transcripts, evenly chosen."""
    found = sorted((DATA / "transcripts").glob("*.vtt"))
    return found[:: len(found) // count][:count]


def lines_of(number: int) -> list[str]:
    """What is said in one of the talks, without who says it."""
    talks = sorted((DATA / "transcripts").glob("btc_*.vtt"))
    cues = read_cue_file(talks[number]).cues
    return [re.sub(r"^[\w .'-]{1,40}: ", "", cue.text) for cue in cues]


def spoken(number: int, minutes: float) -> np.ndarray[Any, np.dtype[np.int16]]:
    """The first minutes of a talk read aloud: samples at 22,050 Hz."""
    text = " ".join(lines_of(number))
    done = subprocess.run(
        ["espeak-ng", "-v", "en-us", "--stdin", "--stdout"],
        input=text[: round(minutes * 1400)].encode(),
        check=True,
        capture_output=True,
    )
    with wave.open(io.BytesIO(done.stdout)) as file:
        # What goes through a pipe has no length in its header.
        samples = np.frombuffer(file.readframes(1 << 30), "<i2")
    return samples[: round(minutes * 60 * 22_050)]


def slides(number: int, seconds: float) -> Iterator[tuple[Image.Image, int]]:
    """Pictures of slides with words of a talk, and for how many frames each stands."""
    rng = random.Random(number)
    lines = [line for line in lines_of(number) if 20 <= len(line) <= 60] or ["an empty slide"]
    heading, text = (ImageFont.load_default(pixels) for pixels in (52, 34))
    left = round(seconds * FRAMES_A_SECOND)
    while left > 0:
        picture = Image.new("RGB", SIZE, (250, 250, 245))
        draw = ImageDraw.Draw(picture)
        draw.text((80, 60), rng.choice(lines)[:40], (20, 40, 90), heading)
        for row in range(rng.randint(3, 8)):
            draw.text((100, 170 + 60 * row), rng.choice(lines), (30, 30, 30), text)
        frames = round(rng.uniform(SHORTEST_SLIDE, LONGEST_SLIDE) * FRAMES_A_SECOND)
        yield picture, min(frames, left)
        left -= frames


def make_video(path: Path, number: int, minutes: float, *, pictures: bool, sound: bool) -> Path:
    """A video of slides, of a talk that is read aloud, or of both."""
    with av.open(str(path), "w") as container:
        samples = spoken(number, minutes) if sound else np.zeros(0, np.int16)
        stream: Any = container.add_stream("libx264", rate=FRAMES_A_SECOND) if pictures else None
        voice: Any = container.add_stream("aac", rate=22_050, layout="mono") if sound else None
        if stream is not None:
            stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
            stream.options = {"preset": "ultrafast", "crf": "28"}
            at = 0
            for picture, frames in slides(number, minutes * 60):
                image = np.asarray(picture)
                for _ in range(frames):
                    frame = av.VideoFrame.from_ndarray(image, format="rgb24")
                    frame.pts, frame.time_base = at, Fraction(1, FRAMES_A_SECOND)
                    container.mux(stream.encode(frame))
                    at += 1
            container.mux(stream.encode(None))
        for start in range(0, len(samples), 1024):
            block = av.AudioFrame.from_ndarray(samples[None, start : start + 1024], "s16", "mono")
            block.sample_rate, block.pts, block.time_base = 22_050, start, Fraction(1, 22_050)
            container.mux(voice.encode(block))
        if voice is not None:
            container.mux(voice.encode(None))
    return path


def videos(folder: Path, count: int, minutes: float, *, pictures: bool, sound: bool) -> list[Path]:
    """So many videos of so many minutes each."""
    suffix = ".mp4" if pictures else ".m4a"
    return [
        make_video(folder / f"talk{number}{suffix}", number, minutes, pictures=pictures, sound=sound)
        for number in range(count)
    ]


def film(folder: Path) -> list[Path]:
    """A film of five minutes in which something always moves."""
    return [repeated(ROOT / "samples" / "videos" / "bottle-detection.mp4", folder / "film.mp4", 7)]


def mixed(folder: Path) -> list[Path]:
    """Transcripts and videos, as people have them together."""
    talks = videos(folder, 1, 11, pictures=True, sound=True)
    return [*talks, DATA / "real_video", *transcripts(3)]


Make = Callable[[Path], list[Path]]
CORPORA: dict[str, tuple[Make, tuple[str, ...]]] = {
    "3 transcripts": (lambda folder: transcripts(3), ()),
    "17 transcripts": (lambda folder: transcripts(17), ()),
    "20 videos of seconds, speech": (lambda folder: [DATA / "real_video"], ("--transcribe",)),
    "20 videos of seconds, screen text": (lambda folder: [DATA / "real_video"], ("--screen-text",)),
    "12 minutes read aloud": (
        lambda folder: videos(folder, 2, 6, pictures=False, sound=True),
        ("--transcribe",),
    ),
    "10 minutes of slides": (
        lambda folder: videos(folder, 2, 5, pictures=True, sound=False),
        ("--screen-text",),
    ),
    "film of 5 minutes, screen text": (film, ("--screen-text",)),
    "11 minutes of spoken slides, 20 videos, 3 transcripts": (mixed, ("--transcribe", "--screen-text")),
    "54 transcripts": (lambda folder: transcripts(54), ()),
}


def command(*words: str | Path) -> tuple[dict[str, Any], float, float]:
    """What a command prints, its processor seconds with those of its children, and seconds by the clock."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "whenabouts.cli.main", *map(str, words), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2):
        raise SystemExit(f"{words}: exit code {process.returncode}")
    return json.loads(printed), used.ru_utime + used.ru_stime, time.monotonic() - began


def measured(make: Make, options: tuple[str, ...]) -> dict[str, Any]:
    """A corpus planned and indexed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "files"
        folder.mkdir()
        paths, place = make(folder), Path(name) / "a.corpus"
        plan, planned, _ = command("index", *paths, "--corpus", place, "--dry-run", *options)
        summary, taken, clock = command("index", *paths, "--corpus", place, *options)
    estimate = plan["estimated_processor_seconds"]
    return {
        "options": " ".join(options),
        "files": plan["files"],
        "hours": round(plan["hours"], 2),
        "clips": summary["clips"],
        "estimated_processor_seconds": estimate,
        "processor_seconds": round(taken, 1),
        "ratio": round(estimate / taken, 2),
        "processor_seconds_of_planning_alone": round(planned, 1),
        "estimated_seconds": plan["estimated_seconds"],
        "seconds_on_a_busy_machine": round(clock, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA), metavar="NAME")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "plan.json")
    given = parser.parse_args()
    result: dict[str, Any] = {
        "what": "processor seconds as a plan estimates them and as the run takes them",
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine("onnxruntime", "faster-whisper", "ctranslate2", "rapidocr", "av"),
        "goal": f"estimate within a factor of {GOAL} of what is taken",
        "corpora": {},
    }
    for name in given.only:
        result["corpora"][name] = measured(*CORPORA[name])
        print(name, json.dumps(result["corpora"][name]), flush=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    ratios = [row["ratio"] for row in result["corpora"].values()]
    result["within_goal"] = sum(1 / GOAL <= ratio <= GOAL for ratio in ratios)
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
