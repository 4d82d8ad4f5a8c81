"""What a cut costs: against plainly decoding and encoding the same frames, and wherever the moment lies.

A recording of 1280x720 at 30 frames a second with sound, and sample recordings, are cut; beside each cut the
same frames are decoded and encoded by PyAV in a loop as anybody would write it, from the key frame before the
moment, once with the settings of a cut and once with the encoder's own. Numbers are the middle of some runs.
Then a cut of 10 seconds is made at several places of a long recording: it must not matter where.

    python benchmarks/cut.py [--runs N] [--out benchmarks/results/cut.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import date
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np

from whenabouts.video.cut import cut

ROOT = Path(__file__).resolve().parents[1]
SIZE = (1280, 720)
RATE = 30
LONG_SECONDS = 90
PLACES = (0.0, 25.0, 50.0, 75.0)
OWN_SETTINGS = {"preset": "veryfast", "crf": "18", "bf": "0"}


def make_recording(path: Path, seconds: int) -> None:
    """Moving shapes and some noise: what a camera delivers is neither still nor plain."""
    rng = np.random.default_rng(1)
    grain = rng.integers(0, 6, (8, SIZE[1], SIZE[0], 3), np.uint8)
    base = np.linspace(30, 200, SIZE[0] * SIZE[1] * 3).reshape(SIZE[1], SIZE[0], 3).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        stream.options = {"preset": "ultrafast", "g": "250", "sc_threshold": "0"}
        sound: Any = container.add_stream("aac", rate=48000, layout="stereo")
        for number in range(seconds * RATE):
            image = np.roll(base, number * 7, axis=1) + grain[number % 8]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            if number % RATE == 0:
                noise = (rng.random((2, 48000)).astype(np.float32) - 0.5) * 0.2
                block = av.AudioFrame.from_ndarray(noise, format="fltp", layout="stereo")
                block.sample_rate, block.pts = 48000, number // RATE * 48000
                block.time_base = Fraction(1, 48000)
                container.mux(sound.encode(block))
        container.mux(stream.encode(None))
        container.mux(sound.encode(None))


def plain(source: Path, start: float, end: float, out: Path, settings: dict[str, str]) -> int:
    """The reference: seek, decode, encode what lies in the span; pictures and sound. Returns the frames."""
    frames = 0
    with av.open(str(source)) as reader, av.open(str(out), "w", format="mp4") as writer:
        pictures = reader.streams.video[0]
        target: Any = writer.add_stream("libx264", rate=pictures.average_rate, options=settings)
        target.width, target.height, target.pix_fmt = pictures.width, pictures.height, "yuv420p"
        target.codec_context.time_base = pictures.time_base
        sounds = reader.streams.audio
        voice: Any = (
            writer.add_stream("aac", rate=sounds[0].rate, layout=sounds[0].layout) if sounds else None
        )
        if start > 0:
            reader.seek(int(start * av.time_base))
        chosen = [pictures, *sounds[:1]]
        for packet in reader.demux(chosen):
            for frame in packet.decode():
                if not isinstance(frame, av.VideoFrame | av.AudioFrame):
                    continue
                if frame.time is None or not start <= frame.time < end:
                    continue
                if isinstance(frame, av.VideoFrame):
                    frame.pict_type = 0
                    frames += 1
                    writer.mux(target.encode(frame))
                else:
                    writer.mux(voice.encode(frame))
            if packet.dts is not None and packet.dts * packet.time_base > end + 1:
                break
        writer.mux(target.encode(None))
        if voice is not None:
            writer.mux(voice.encode(None))
    return frames


def measured(works: Mapping[str, Callable[[], Any]], runs: int) -> dict[str, tuple[float, float]]:
    """(wall, processor) seconds of each piece of work, the middle of some runs that take turns.

    On a machine that others use, too, wall seconds say little; processor seconds are those of all threads.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            wall, busy = time.perf_counter(), time.process_time()
            work()
            taken[name].append((time.perf_counter() - wall, time.process_time() - busy))
    return {
        name: (
            round(statistics.median(wall for wall, _ in rows), 3),
            round(statistics.median(busy for _, busy in rows), 3),
        )
        for name, rows in taken.items()
    }


def compared(name: str, source: Path, start: float, end: float, out: Path, runs: int) -> dict[str, Any]:
    done = cut(source, start, end, out, force=True)
    taken = measured(
        {
            "cut": lambda: cut(source, start, end, out, force=True),
            "plain_same_settings": lambda: plain(source, start, end, out, OWN_SETTINGS),
            "plain_encoder_defaults": lambda: plain(source, start, end, out, {}),
            "copy": lambda: cut(source, start, end, out.with_suffix(".mkv"), force=True, copy=True),
        },
        runs,
    )
    own = taken["cut"]
    row = {
        "recording": name,
        "moment": [start, end],
        "frames": done.frames,
        "plain_frames": plain(source, start, end, out, OWN_SETTINGS),
        "wall_seconds": {kind: wall for kind, (wall, _) in taken.items()},
        "processor_seconds": {kind: busy for kind, (_, busy) in taken.items()},
        "processor_ratio_same_settings": round(own[1] / taken["plain_same_settings"][1], 3),
        "processor_ratio_encoder_defaults": round(own[1] / taken["plain_encoder_defaults"][1], 3),
        "wall_ratio_same_settings": round(own[0] / taken["plain_same_settings"][0], 3),
        "wall_ratio_encoder_defaults": round(own[0] / taken["plain_encoder_defaults"][0], 3),
    }
    print(json.dumps(row))
    return row


def ten_seconds(source: Path, out: Path, runs: int) -> dict[str, float]:
    """Processor seconds of ten seconds cut at several places."""
    works = {str(at): partial(cut, source, at, at + 10, out, force=True) for at in PLACES}
    return {at: busy for at, (_, busy) in measured(works, runs).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "cut.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        long = folder / "long.mp4"
        make_recording(long, LONG_SECONDS)
        rows = [compared("made, 1280x720", long, 53.0, 63.0, folder / "out.mp4", options.runs)]
        for name, start, end in (
            ("man_green_wall.mp4", 10.0, 20.0),
            ("bottle-detection.mp4", 20.0, 30.0),
            ("car-detection.mp4", 10.0, 20.0),
        ):
            source = ROOT / "samples" / "videos" / name
            rows.append(compared(name, source, start, end, folder / "out.mp4", options.runs))
        places = ten_seconds(long, folder / "out.mp4", options.runs)
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "date": date.today().isoformat(),
        "av": av.__version__,
        "runs": options.runs,
        "cuts": rows,
        "load_average": os.getloadavg()[1],
        "processor_seconds_of_ten_seconds_by_start": places,
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(places))


if __name__ == "__main__":
    main()
