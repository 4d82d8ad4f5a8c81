"""What likeness finds and costs: frames of one video, changed copies, repeats, sureness, time and disk.

    python -m benchmarks.likeness FOLDER [--out benchmarks/results/likeness.json] [--sure] [--learn]

FOLDER holds videos of which no two show the same. Changed copies of all are made with ffmpeg, begun 0.4 s
later, so that no frame of a copy was taken at the time of one of the original. The least cosine of a repeat
is chosen on every second video and reported on the others.

How sure: each frame, each five seconds and each frame of a copy is asked twice, with its video there (a frame
of it two seconds away or more is right) and with its video taken out (nothing is right). A logistic curve
over the best cosine is fitted to frames and seconds of the other videos and judged on this one, video by
video; all weigh the same. `--sure` measures this alone; `--learn` writes the curve of all videos to
`confidence/learned.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from numpy.typing import NDArray
from scipy.optimize import minimize

from whenabouts.confidence.alike import Alike
from whenabouts.confidence.probability import PROBABLE
from whenabouts.corpus import Corpus
from whenabouts.duplicates import LEAST, LEAST_SECONDS, stretches
from whenabouts.encoders import open_picture_encoder
from whenabouts.video.frames import sample_frames

DATE = "2026-11-23"
LEFT_OUT = ("corrupt", "truncated", "zero_byte", "no_duration", "rot90")
NETWORK = "efficientnet-lite2"
LEARNED = (
    Path(__file__).parents[1]
    / "packages"
    / "whenabouts"
    / "src"
    / "whenabouts"
    / "confidence"
    / "learned.json"
)
ASIDE = 2
MOMENT = 5
LATER = 0.4
CHANGES = {
    "compressed": "null",
    "small": "scale=160:-2",
    "cropped": "crop=iw*0.8:ih*0.8",
    "captioned": "drawbox=y=ih*0.8:h=ih*0.2:color=black:t=fill,"
    "drawbox=x=iw*0.1:y=ih*0.86:w=iw*0.8:h=ih*0.06:color=white:t=fill",
    "brighter": "eq=brightness=0.12:contrast=1.25",
    "mirrored": "hflip",
}
CANDIDATES = tuple(round(0.7 + 0.01 * step, 2) for step in range(30))
Vectors = NDArray[np.float32]


def frames_of(path: Path) -> list[NDArray[np.uint8]]:
    with sample_frames(path, 1.0, size=260) as reader:
        return [frame.image for frame in reader]


def changed(path: Path, how: str, folder: Path) -> Path:
    out = folder / f"{path.stem}.{how}.mp4"
    quality = "40" if how == "compressed" else "28"
    even = "scale=trunc(iw/2)*2:trunc(ih/2)*2"
    command = ["ffmpeg", "-v", "error", "-y", "-ss", str(LATER), "-i", str(path), "-an", "-sn"]
    command += ["-vf", f"{CHANGES[how]},{even}", "-c:v", "libx264", "-preset", "veryfast", "-crf", quality]
    subprocess.run([*command, "-pix_fmt", "yuv420p", str(out)], check=True)
    return out


def interval(values: Sequence[float], weights: Sequence[int]) -> list[float]:
    """95 % of 2,000 draws of as many videos, with replacement, of a mean over their frames."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(values), (2000, len(values)))
    sums, counts = np.array(values)[drawn].sum(axis=1), np.array(weights)[drawn].sum(axis=1)
    return [round(float(bound), 4) for bound in np.percentile(sums / np.maximum(counts, 1), [2.5, 97.5])]


def share(hits: Mapping[str, NDArray[np.bool_]]) -> dict[str, Any]:
    sums, counts = [float(hit.sum()) for hit in hits.values()], [len(hit) for hit in hits.values()]
    return {
        "share": round(sum(sums) / sum(counts), 4),
        "interval": interval(sums, counts),
        "frames": sum(counts),
        "videos": len(counts),
    }


def same_video(originals: Mapping[str, Vectors]) -> dict[str, Any]:
    """Share of frames whose nearest one, at least `ASIDE` s away, is of the same video; and by chance.

    Also the highest cosine of two frames of different videos.
    """
    names, vectors = list(originals), np.concatenate(list(originals.values()))
    owner = np.concatenate([np.full(len(originals[name]), place) for place, name in enumerate(names)])
    at = np.concatenate([np.arange(len(own)) for own in originals.values()])
    near = (owner[:, None] == owner) & (np.abs(at[:, None] - at) < ASIDE)
    cosines = np.where(near, -2.0, vectors @ vectors.T)
    hit = owner[cosines.argmax(axis=1)] == owner
    able = (~near & (owner[:, None] == owner)).any(axis=1)
    chance = ((~near & (owner[:, None] == owner)).sum(axis=1) / (~near).sum(axis=1))[able]
    found = {name: hit[able & (owner == place)] for place, name in enumerate(names)}
    return share({name: own for name, own in found.items() if len(own)}) | {
        "chance": round(float(chance.mean()), 4),
        "highest_of_different_videos": round(float(cosines[owner[:, None] != owner].max()), 4),
    }


def nearest_of_copies(
    originals: Mapping[str, Vectors], copies: Mapping[str, Mapping[str, Vectors]]
) -> dict[str, Any]:
    """For each change: share of a copy's frames whose nearest original frame is of the same video."""
    names = list(originals)
    owner = np.concatenate([np.full(len(originals[name]), place) for place, name in enumerate(names)])
    vectors = np.concatenate(list(originals.values()))
    return {
        how: share(
            {name: owner[(own @ vectors.T).argmax(axis=1)] == names.index(name) for name, own in by.items()}
        )
        for how, by in copies.items()
    }


def repeats(
    originals: Mapping[str, Vectors],
    copies: Mapping[str, Mapping[str, Vectors]],
    names: Sequence[str],
    least: float,
) -> dict[str, dict[str, Any]]:
    """How much of copies is seen in their originals, and how many repeats are of another video."""
    table = {}
    for how, by in copies.items():
        right = wrong = covered = total = 0
        for name in names:
            for other, vectors in originals.items():
                kept = [run for run in stretches(by[name] @ vectors.T, least) if run[2] >= LEAST_SECONDS]
                if other == name:
                    right += len(kept)
                    covered += len({at for first, _, length in kept for at in range(first, first + length)})
                    total += len(by[name])
                else:
                    wrong += len(kept)
        table[how] = {"right": right, "wrong": wrong, "seconds_found": covered, "seconds": total}
    return table


def summed(table: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    sums = {
        key: sum(row[key] for row in table.values()) for key in ("right", "wrong", "seconds_found", "seconds")
    }
    precision = sums["right"] / max(1, sums["right"] + sums["wrong"])
    return {"precision": round(precision, 4), "recall": round(sums["seconds_found"] / sums["seconds"], 4)}


def chosen(originals: Mapping[str, Vectors], copies: Any, names: Sequence[str]) -> float:
    """The candidate with the best F1 of precision and recall on some videos."""

    def f1(least: float) -> float:
        row = summed(repeats(originals, copies, names, least))
        return 2 * row["precision"] * row["recall"] / max(1e-9, row["precision"] + row["recall"])

    return max(CANDIDATES, key=lambda least: (round(f1(least), 4), least))


@dataclass(frozen=True)
class Asked:
    """An example of a video: what the nearest frames of its own and of other videos have as cosines."""

    video: str
    kind: str
    own: float
    other: float

    @property
    def with_video(self) -> tuple[float, bool]:
        """The best cosine with its video there, and whether that is right."""
        return max(self.own, self.other), self.own > self.other


def examples(originals: Mapping[str, Vectors], copies: Mapping[str, Mapping[str, Vectors]]) -> list[Asked]:
    """Frames and seconds of each video that has others `ASIDE` s away, and frames of its copies."""
    asked = []
    for name, own in originals.items():
        others = np.concatenate([vectors for other, vectors in originals.items() if other != name])
        at = np.arange(len(own))
        for kind, length in (("frames", 1), ("five seconds", MOMENT)):
            for first in range(0, len(own) - length + 1, length):
                mean = own[first : first + length].sum(axis=0)
                mean /= np.linalg.norm(mean)
                aside = ASIDE if length == 1 else 1
                far = (at <= first - aside) | (at >= first + length - 1 + aside)
                if far.any():
                    asked.append(
                        Asked(name, kind, float((own[far] @ mean).max()), float((others @ mean).max()))
                    )
        for how in copies:
            asked += [
                Asked(name, how, float((own @ vector).max()), float((others @ vector).max()))
                for vector in copies[how][name]
            ]
    return asked


def fitted(asked: Sequence[Asked]) -> tuple[float, float]:
    """Intercept and weight of the cosine, by maximum likelihood with a faint ridge; videos weigh the same."""
    of_video = Counter(one.video for one in asked)
    both = [(*one.with_video, 1 / of_video[one.video]) for one in asked]
    both += [(one.other, False, 1 / of_video[one.video]) for one in asked]
    cosine, right, worth = np.array(both, np.float64).T

    def lost(value: NDArray[np.float64]) -> float:
        odds = value[0] + value[1] * (cosine - 0.6)
        return float((worth * (np.logaddexp(0, odds) - right * odds)).sum()) + 1e-4 * float(value @ value)

    middle, weight = minimize(lost, np.array([0.0, 30.0])).x
    return round(float(middle - 0.6 * weight), 3), round(float(weight), 3)


def sureness(asked: Sequence[Asked]) -> dict[str, Any]:
    """What is stated and what is right of each video by the curve of the others."""
    learned_on = [one for one in asked if one.kind in ("frames", "five seconds")]
    curves = {
        video: Alike(*fitted([one for one in learned_on if one.video != video]))
        for video in {one.video for one in asked}
    }
    result: dict[str, Any] = {}
    for kind in ("frames", "five seconds", "copies"):
        some = [one for one in asked if (one.kind == kind if kind != "copies" else one.kind in CHANGES)]
        there = [(one.video, curves[one.video].of(one.with_video[0]), one.with_video[1]) for one in some]
        gone = [(one.video, curves[one.video].of(one.other), False) for one in some]
        result[kind] = {"there": _told(there), "taken out": _told(gone)}
    return result


def _told(rows: Sequence[tuple[str, float, bool]]) -> dict[str, Any]:
    videos = sorted({video for video, *_ in rows})
    counts = [sum(video == own for own, *_ in rows) for video in videos]

    def mean(values: Sequence[float]) -> list[float]:
        sums = [sum(v for (own, *_), v in zip(rows, values, strict=True) if own == video) for video in videos]
        return [round(sum(sums) / sum(counts), 4), *interval(sums, counts)]

    matched = [right for _, stated, right in rows if stated >= PROBABLE.match_at]
    refused = [right for _, stated, right in rows if stated < PROBABLE.no_match_below]
    return {
        "asked": len(rows),
        "videos": len(videos),
        "right": mean([right for *_, right in rows]),
        "stated": mean([stated for _, stated, _ in rows]),
        "match": [len(matched), sum(matched)],
        "no match": [len(refused), sum(refused)],
    }


def cost(paths: Sequence[Path], frames: Sequence[NDArray[np.uint8]], folder: Path) -> dict[str, Any]:
    """Processor seconds of an hour of video at one frame a second, its disk, and the time of a query."""
    encoder = open_picture_encoder(NETWORK)
    encoder.encode_images(frames[:4])
    began = time.process_time()
    encoder.encode_images(frames)
    per_frame = (time.process_time() - began) / len(frames)
    corpus = Corpus(folder / "a.corpus", create=True)
    corpus.add(*paths, likeness=True, processes=1)
    place = folder / "a.corpus" / "clips_likeness.lance"
    stored = sum(file.stat().st_size for file in place.rglob("*.lance"))
    clips = corpus.store.stats().streams["likeness"].clips
    queries: dict[str, list[float]] = {"picture": [], "moment": []}
    for path in [*paths, *paths]:
        for kind, like in (("picture", frames[0]), ("moment", f"{path.name}@1")):
            began = time.perf_counter()
            corpus.search(like=like)
            queries[kind].append(1000 * (time.perf_counter() - began))
    return {
        "encoding_processor_seconds_an_hour": round(3600 * per_frame, 1),
        "megabytes_an_hour": round(3600 * stored / clips / 1e6, 2),
        "query_milliseconds_median": {kind: round(float(np.median(v)), 1) for kind, v in queries.items()},
        "clips": clips,
    }


def videos_of(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (".mp4", ".webm", ".mkv", ".avi", ".mov") and not path.name.startswith(LEFT_OUT)
    )


def vectors_of(folder: Path, kept: Path | None) -> tuple[dict[str, Vectors], dict[str, dict[str, Vectors]]]:
    """The frames of each video, and of its copies by change, encoded; `kept` is where they are kept."""
    if kept is None or not kept.exists():
        encoder, found = open_picture_encoder(NETWORK), dict[str, Vectors]()
        with tempfile.TemporaryDirectory() as place:
            for path in videos_of(folder):
                found[path.stem] = encoder.encode_images(frames_of(path))
                for how in CHANGES:
                    copy = changed(path, how, Path(place))
                    found[f"{path.stem}|{how}"] = encoder.encode_images(frames_of(copy))
        if kept is not None:
            arrays: dict[str, Any] = found
            np.savez(kept, **arrays)
    else:
        with np.load(kept) as file:
            found = dict(file)
    originals = {name: own for name, own in found.items() if "|" not in name}
    return originals, {how: {name: found[f"{name}|{how}"] for name in originals} for how in CHANGES}


def measure(folder: Path, kept: Path | None) -> dict[str, Any]:
    paths = videos_of(folder)
    originals, copies = vectors_of(folder, kept)
    with tempfile.TemporaryDirectory() as place:
        costs = cost(paths, [image for path in paths for image in frames_of(path)], Path(place))
    halves = list(originals)[::2], list(originals)[1::2]
    least = chosen(originals, copies, halves[0])
    held_out = {value: repeats(originals, copies, halves[1], value) for value in (least, LEAST)}
    return {
        "videos": len(paths),
        "same_video": same_video(originals),
        "copies_hit_at_1": nearest_of_copies(originals, copies),
        "repeats": {
            "chosen_on": halves[0],
            "chosen": least,
            "in_use": LEAST,
            "on_the_half_chosen_on": summed(repeats(originals, copies, halves[0], least)),
            "held_out": {str(value): summed(table) for value, table in held_out.items()},
            "held_out_by_change": held_out[least],
        },
        "sureness": sureness(examples(originals, copies)),
        "cost": costs,
    }


def learn(asked: Sequence[Asked]) -> dict[str, Any]:
    """Write the curve of all videos beside the shipped curves."""
    value = json.loads(LEARNED.read_text(encoding="utf-8"))
    intercept, weight = fitted([one for one in asked if one.kind in ("frames", "five seconds")])
    own = {"intercept": intercept, "weight": weight, "videos": len({one.video for one in asked})}
    value["alike"] = {**value.get("alike", {}), NETWORK: own}
    LEARNED.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return own


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--vectors", type=Path, help="keep the encoded frames in this .npz file, or take them"
    )
    parser.add_argument("--sure", action="store_true", help="measure alone how sure answers are")
    parser.add_argument("--learn", action="store_true", help="write the curve that the package ships")
    options = parser.parse_args()
    result = {"date": DATE, "machine": describe_machine("onnxruntime", "av")}
    if options.sure:
        before = json.loads(options.out.read_text(encoding="utf-8")) if options.out else {}
        told = sureness(examples(*vectors_of(options.folder, options.vectors)))
        result = {**before, "sureness": told | {"measured": result}}
    else:
        result |= measure(options.folder, options.vectors)
    if options.learn:
        result["learned"] = learn(examples(*vectors_of(options.folder, options.vectors)))
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
