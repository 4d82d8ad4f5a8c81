"""Ingest without vision against plain decoding, and its memory over ten hours.

Ours is what `whenabouts index` does with a file before any encoder: frames at the clip rate, upright and
scaled, shots, and words. Plain is a PyAV loop with the same threads that takes and converts the same
frames. Both run in turn, several times, in one process; the ratio of the medians is what counts (1 means
as fast as plain decoding, more means faster). Memory is the peak of a process of its own.

    python benchmarks/ingest.py [--rounds 5] [--out benchmarks/results/ingest.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from whenabouts.video.cues import words_of
from whenabouts.video.frames import sample_frames
from whenabouts.video.probe import probe
from whenabouts.video.shots.built_in import CellFinder

ROOT = Path(__file__).resolve().parents[1]
RATE, SIZE = 4.0, 224
REAL = ("bottle-detection.mp4", "car-detection.mp4", "man_green_wall.mp4", "flower.webm", "friday.mp4")


def ours(path: Path, sidecars: list[Path]) -> int:
    """Frames, shots and words; gives the number of frames taken."""
    words_of(path, sidecars, probe(path))
    shots, count = CellFinder(), 0
    with sample_frames(path, RATE, size=SIZE) as reader:
        for frame in reader:
            shots.add(frame)
            count += 1
    shots.borders()
    return count


def plain(path: Path, sidecars: list[Path]) -> int:
    """A loop such as anybody writes: decode all, convert the first frame at or after each instant."""
    count, wanted = 0, 0.0
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        origin = (container.start_time or 0) / 1_000_000
        for frame in container.decode(stream):
            if frame.time is None or frame.time - origin < wanted - 0.0005:
                continue
            wanted = (int((frame.time - origin + 0.0005) * RATE) + 1) / RATE
            scale = min(1.0, SIZE / min(frame.width, frame.height))
            width, height = round(frame.width * scale), round(frame.height * scale)
            frame.to_ndarray(format="rgb24", width=width, height=height)
            count += 1
    return count


def timed(
    work: Callable[[Path, list[Path]], int], path: Path, sidecars: list[Path]
) -> tuple[float, float, int]:
    """Wall seconds, processor seconds of all threads, and frames taken."""
    wall, processor = time.perf_counter(), time.process_time()
    count = work(path, sidecars)
    return time.perf_counter() - wall, time.process_time() - processor, count


def compared(path: Path, sidecars: list[Path], rounds: int) -> dict[str, Any]:
    """Both ways in turn; which goes first alternates."""
    results: dict[str, list[tuple[float, float, int]]] = {"ours": [], "plain": []}
    ways = [("ours", ours), ("plain", plain)]
    for number in range(rounds):
        for name, work in ways if number % 2 else ways[::-1]:
            results[name].append(timed(work, path, sidecars))
    wall, processor = (
        {name: statistics.median(run[part] for run in runs) for name, runs in results.items()}
        for part in (0, 1)
    )
    taken = {name: runs[0][2] for name, runs in results.items()}
    return {
        "video_seconds": round(probe(path).duration or 0, 2),
        "frames_taken": taken["ours"],
        "frames_taken_plain": taken["plain"],
        "ratio_wall": round(wall["plain"] / wall["ours"], 3),
        "ratio_processor": round(processor["plain"] / processor["ours"], 3),
        "ours_seconds": round(wall["ours"], 3),
        "plain_seconds": round(wall["plain"], 3),
    }


def repeated(source: Path, target: Path, times: int) -> Path:
    """The video stream of `source` written `times` times, one behind the other, without encoding anew."""
    with av.open(str(target), "w") as out:
        written: Any = None
        offset = 0
        for _ in range(times):
            with av.open(str(source)) as container:
                stream = container.streams.video[0]
                if written is None:
                    written = out.add_stream_from_template(stream)
                length = stream.duration or 0
                for packet in container.demux(stream):
                    if packet.dts is None or packet.pts is None:
                        continue
                    packet.pts, packet.dts = packet.pts + offset, packet.dts + offset
                    packet.stream = written
                    out.mux(packet)
                offset += length
    return target


def generated(path: Path, seconds: int, rate: int, width: int, height: int) -> Path:
    """A cheap film: a coarse pattern that moves, another one every ten seconds."""
    generator = np.random.default_rng(1)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"preset": "veryfast", "g": str(10 * rate)}
        for number in range(seconds * rate):
            if number % (10 * rate) == 0:
                scene = generator.integers(0, 255, (height // 8, width // 8, 3), np.uint8)
                scene = scene.repeat(8, axis=0).repeat(8, axis=1)
            image = np.ascontiguousarray(np.roll(scene, number % (10 * rate), axis=1))
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def subtitles(path: Path, seconds: int) -> Path:
    """A cue every three seconds."""
    lines = []
    for number, start in enumerate(range(0, seconds, 3), 1):
        clock = [f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02},000" for at in (start, start + 2)]
        lines.append(
            f"{number}\n{clock[0]} --> {clock[1]}\nThis is line number {number} of a long evening.\n"
        )
    path.write_text("\n".join(lines))
    return path


def peak_memory(folder: Path, hours: int) -> dict[str, Any]:
    """Peak resident memory of a process that takes in a generated film of so many hours."""
    minute = generated(folder / "minute.mp4", 60, 10, 160, 96)
    film = repeated(minute, folder / f"{hours}h.mp4", 60 * hours)
    words = subtitles(folder / f"{hours}h.srt", 3600 * hours)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--measure", str(film), str(words)],
        check=True,
        capture_output=True,
        text=True,
    )
    megabytes, frames, shots = json.loads(done.stdout)
    film.unlink()
    return {
        "hours": hours,
        "picture": "160x96 h264, 10 frames a second",
        "frames_taken": frames,
        "shots_found": shots,
        "peak_megabytes": megabytes,
        "hours_a_minute": round(hours / ((time.perf_counter() - began) / 60), 1),
    }


def measure(film: Path, words: Path) -> None:
    """In the process that is measured: take the film in, print what it took."""
    tracks = words_of(film, [words], probe(film))
    shots, count = CellFinder(), 0
    for frame in sample_frames(film, RATE, size=SIZE):
        shots.add(frame)
        count += 1
    borders = shots.borders()
    assert tracks[0].cues
    print(json.dumps([round(_peak_megabytes(), 1), count, len(borders)]))


def _peak_megabytes() -> float:
    """Of this process alone: on Linux ru_maxrss starts with the peak of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "av": av.__version__,
        "numpy": np.__version__,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "ingest.json")
    options.add_argument("--measure", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.measure:
        measure(*given.measure)
        return
    result: dict[str, Any] = {
        "what": "ingest without vision (frames, shots, words) against plain PyAV decoding of the same frames",
        "date": date.today().isoformat(),
        "machine": machine(),
        "frames_a_second": RATE,
        "short_side": SIZE,
        "rounds": given.rounds,
        "goal": {"ratio": 0.8, "peak_megabytes_of_ten_hours": 1000},
        "files": {},
    }
    samples = ROOT / "samples" / "videos"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for video in REAL:
            sidecars = [
                path for path in samples.glob(f"{Path(video).stem}.*") if path.suffix in (".srt", ".vtt")
            ]
            result["files"][video] = compared(samples / video, sidecars, given.rounds)
        long = repeated(samples / "bottle-detection.mp4", folder / "long.mp4", 15)
        words = subtitles(folder / "long.srt", 600)
        result["files"]["bottle-detection.mp4 fifteen times over"] = compared(
            long, [words], min(3, given.rounds)
        )
        film = generated(folder / "generated.mp4", 120, 30, 640, 352)
        result["files"]["generated 640x352, two minutes"] = compared(film, [], min(3, given.rounds))
        result["memory"] = [peak_memory(folder, hours) for hours in (1, 10)]
    ratios = [entry["ratio_processor"] for entry in result["files"].values()]
    result["least_ratio_processor"], result["median_ratio_processor"] = min(ratios), statistics.median(ratios)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
