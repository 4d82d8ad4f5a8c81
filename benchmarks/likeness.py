"""What likeness finds and costs: frames of one video, changed copies, repeats, time and disk.

    python -m benchmarks.likeness FOLDER [--out benchmarks/results/likeness.json]

FOLDER holds videos of which no two show the same. Changed copies of all are made with ffmpeg, begun 0.4 s
later, so that no frame of a copy was taken at the time of one of the original. The least cosine of a repeat
is chosen on every second video and reported on the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from numpy.typing import NDArray

from whenabouts.encoders import open_picture_encoder
from whenabouts.product.corpus import Corpus
from whenabouts.product.duplicates import LEAST, LEAST_SECONDS, stretches
from whenabouts.video.frames import sample_frames

DATE = "2026-11-23"
LEFT_OUT = ("corrupt", "truncated", "zero_byte", "no_duration", "rot90")
ASIDE = 2
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
    """Share of frames whose nearest one, at least `ASIDE` s away, is of the same video; and by chance."""
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
        "chance": round(float(chance.mean()), 4)
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
                    seconds = sum(length for _, _, length in kept)
                    right += len(kept)
                    covered += min(seconds, len(by[name]))
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


def cost(paths: Sequence[Path], frames: Sequence[NDArray[np.uint8]], folder: Path) -> dict[str, Any]:
    """Processor seconds of an hour of video at one frame a second, its disk, and the time of a query."""
    encoder = open_picture_encoder("efficientnet-lite2")
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


def measure(folder: Path) -> dict[str, Any]:
    encoder = open_picture_encoder("efficientnet-lite2")
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (".mp4", ".webm", ".mkv", ".avi", ".mov") and not path.name.startswith(LEFT_OUT)
    )
    frames = {path.name: frames_of(path) for path in paths}
    originals = {name: encoder.encode_images(own) for name, own in frames.items()}
    with tempfile.TemporaryDirectory() as place:
        copies = {
            how: {
                path.name: encoder.encode_images(frames_of(changed(path, how, Path(place)))) for path in paths
            }
            for how in CHANGES
        }
        every = [image for own in frames.values() for image in own]
        costs = cost(paths, every, Path(place))
    halves = list(frames)[::2], list(frames)[1::2]
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
        "cost": costs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = {"date": DATE, "machine": describe_machine("onnxruntime", "av"), **measure(options.folder)}
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
