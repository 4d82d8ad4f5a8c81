"""How the frames of a moment are pooled into the score that orders moments of all videos.

    python -m benchmarks.pooling --out benchmarks/results/pooling.json

Generated pictures and sentences as in `scale_pictures.py`. 400 videos of 300 frames, one a second,
are made of scenes of 2 to 32 seconds: all frames of a scene share its content, and each has noise of its own,
0.7 (frames of a scene are much alike), 1.4 or 2 times as strong. A sentence has a cosine of 0.5 with the
content of one scene. The product's localizer finds moments in the 40 videos of the 200 nearest frames; these
moments are then ordered by each way of pooling. A hit is a moment with an IoU of 0.3 or more.

`correlated R` is the mean divided by its standard deviation where the noise of any two frames has the
correlation R: it grows with the number of frames n as (R + (1 - R) / n) ** -0.5.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from benchmarks import scale_pictures
from benchmarks.scale import Matrix, normal, topics, unit
from numpy.typing import NDArray

from whenabouts.moments.fusion import COSINE_WEIGHT
from whenabouts.moments.zero_shot import Config, Curves, Moments, ZeroShotLocalizer

VIDEOS, FRAMES, VIDEOS_SEARCHED, NEAREST = 400, 300, 40, 200
LENGTHS = (2, 4, 8, 16, 32)
NOISES = (0.7, 1.4, 2.0)
_COSINE, _IOU, _SEED = 0.5, 0.3, 3
Frames = NDArray[np.float64]
Scene = tuple[int, int, int]
"""Video, first frame, and the frame after the last."""


def lasting(exponent: float, frames: Frames) -> float:
    """The mean, times the seconds to some power; the product's way with 0.3."""
    return float(frames.mean() * len(frames) ** (exponent if frames.mean() > 0 else 0.0))


def best(count: int, frames: Frames) -> float:
    """The mean of the best few frames; of one: the maximum."""
    return float(np.sort(frames)[-count:].mean())


def best_half(frames: Frames) -> float:
    """The mean of the better half."""
    return best(max(1, len(frames) // 2), frames)


def correlated(share: float, frames: Frames) -> float:
    """See the module."""
    mean = float(frames.mean())
    return mean / float(np.sqrt(share + (1 - share) / len(frames))) if mean > 0 else mean


WAYS: dict[str, Callable[[Frames], float]] = {
    **{f"mean x seconds ^ {power}": partial(lasting, power) for power in (0.3, 0.15, 0.0)},
    **{f"best {count}": partial(best, count) for count in (1, 3, 5)},
    "best half": best_half,
    **{f"correlated {share}": partial(correlated, share) for share in (0.2, 0.3, 0.4, 0.5, 0.7)},
}


def corpus(rng: np.random.Generator, noise: float) -> tuple[Matrix, list[Scene]]:
    """The contents of the frames of all videos (VIDEOS * FRAMES, D), and the scenes."""
    width = scale_pictures.DIMENSION
    rest, scenes = np.empty((VIDEOS, FRAMES, width), np.float32), list[Scene]()
    subjects = topics(scale_pictures.SEED, width)
    for video in range(VIDEOS):
        place, frame = subjects[rng.integers(len(subjects))] + 0.9 * normal(rng, width), 0
        while frame < FRAMES:
            length = min(int(rng.choice(LENGTHS)), FRAMES - frame)
            content = place + 0.9 * normal(rng, width)
            rest[video, frame : frame + length] = content + noise * normal(rng, length, width)
            scenes.append((video, frame, frame + length))
            frame += length
    return unit(rest.reshape(-1, width)), scenes


def ranks(queries: int, noise: float) -> Iterator[tuple[int, dict[str, float]]]:
    """For each query the length of its scene, and by way the rank of the first hit (0 is first)."""
    rng = np.random.default_rng(_SEED)
    rest, scenes = corpus(rng, noise)
    frames = unit(scale_pictures._cones()[0] + rest)
    background = scale_pictures.unrelated("gap") @ frames[::7].T
    level, spread = float(background.mean()), float(background.std())
    asked = [scene for scene in scenes if scene[2] - scene[1] in LENGTHS]
    localizer, start = ZeroShotLocalizer(Config()), np.arange(FRAMES, dtype=np.float64)
    for _ in range(queries):
        video, first, end = asked[rng.integers(len(asked))]
        content = unit(rest[video * FRAMES + first : video * FRAMES + end].mean(axis=0)[None])
        cosine = frames @ scale_pictures._about(rng, content)[0]
        videos = list(dict.fromkeys((np.argsort(-cosine)[:NEAREST] // FRAMES).tolist()))[:VIDEOS_SEARCHED]
        score = ((cosine.reshape(VIDEOS, FRAMES)[videos] - level) / spread).astype(np.float64)
        times = np.tile(start, len(videos))
        offsets = np.arange(len(videos) + 1) * FRAMES
        curves = Curves(COSINE_WEIGHT * score.ravel(), times, times + 1, offsets, 0.0, COSINE_WEIGHT)
        moments = localizer.localize(curves)
        hits = hits_of(moments, videos, (video, first, end))
        pieces = [
            score[row, a : b + 1]
            for row, a, b in zip(moments.video, moments.first_clip, moments.last_clip, strict=True)
        ]
        yield end - first, {name: rank(hits, [way(own) for own in pieces]) for name, way in WAYS.items()}


def hits_of(moments: Moments, videos: list[int], scene: Scene) -> NDArray[np.bool_]:
    """Which moments are of the scene."""
    video, first, end = scene
    shared = np.minimum(moments.end, end) - np.maximum(moments.start, first)
    spanned = np.maximum(moments.end, end) - np.minimum(moments.start, first)
    hits: NDArray[np.bool_] = (np.array(videos)[moments.video] == video) & (shared >= _IOU * spanned)
    return hits


def rank(hits: NDArray[np.bool_], scores: list[float]) -> float:
    """The rank of the first hit, infinite without one."""
    places = np.flatnonzero(hits[np.argsort(-np.array(scores), kind="stable")])
    return float(places[0]) if len(places) else float("inf")


def measured(queries: int, noise: float) -> dict[str, Any]:
    """Hits among 1 and 5 by way, and among 1 by the seconds of the scene."""
    with patch.object(scale_pictures, "_COSINE", _COSINE):
        rows = list(ranks(queries, noise))
    lengths = np.array([length for length, _ in rows])
    report: dict[str, Any] = {}
    for name in WAYS:
        own = np.array([ranked[name] for _, ranked in rows])
        by_length = {str(length): own[lengths == length] for length in LENGTHS}
        report[name] = {f"hit@{k}": round(float((own < k).mean()), 3) for k in (1, 5)}
        report[name]["hit@1 by seconds"] = {
            length: round(float((some < 1).mean()), 2) for length, some in by_length.items() if len(some)
        }
    return report


def main() -> None:
    """Measure each strength of noise."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "queries": options.queries}
    for noise in NOISES:
        report[f"noise {noise}"] = measured(options.queries, noise)
        print(noise, json.dumps(report[f"noise {noise}"], indent=1), flush=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
