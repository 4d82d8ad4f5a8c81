"""Simulated features with queries whose words tell what is seen and what is said, for tables 2 and 3 of PREM.

    python -m benchmarks.seen_and_said FEATURES OUT
    python -m benchmarks.studies prem-retriever OUT RUNS

FEATURES is what `simulate_features.py` wrote of Charades-STA. There every query describes what is seen, and
where a moment is spoken about, it is in the query's own words: no word of a query belongs to one stream, and
a system that only hears is asked nothing that it could not know. Queries of TVR are of three types: about
what is seen, about what is said, about both. So are these, a third each, drawn for each moment:

- seen: the caption as it is ("person opens the door.");
- said: "someone says: CAPTION", the caption of another video of the split, which is spoken in the moment;
- both: "person opens the door and says: CAPTION".

The pictures stay as simulated. What is said in a clip is the sum of the captions' vectors there, with noise
as long as 0.3, of unit length. A spoken caption fills seven of ten clips of its moment (at least one); of the
other clips a quarter has the caption of any moment of the split. All else has no words.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import TextEncoder, encode_tokens, open_text_encoder

Matrix = NDArray[np.float32]

SEEN, SAID, BOTH = "v", "t", "vt"
CLIP = 3.0
SPOKEN, CHATTER, NOISE = 0.7, 0.25, 0.3
VIDEO, SUB, TOKENS = "charades_video_cl-3.h5", "charades_sub_cl-3.h5", "charades_query_tokens.h5"
AT_A_TIME = 1024


@dataclass(frozen=True)
class Asked:
    """A line of the annotations with its new words, and the caption that is spoken in its moment."""

    line: Mapping[str, Any]
    says: str | None


def asked(lines: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> list[Asked]:
    """Each line as a query of one of the three types."""
    kinds = rng.choice([SEEN, SAID, BOTH], len(lines))
    return [_asked(line, str(kind), lines, rng) for line, kind in zip(lines, kinds, strict=True)]


def _asked(
    line: Mapping[str, Any], kind: str, lines: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> Asked:
    if kind == SEEN:
        return Asked(dict(line) | {"type": kind}, None)
    says = _caption_of_another(line["vid_name"], lines, rng)
    text = f"{line['desc'].rstrip(' .')} and says: {says}" if kind == BOTH else f"someone says: {says}"
    return Asked(dict(line) | {"type": kind, "desc": text}, says)


def _caption_of_another(video: str, lines: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> str:
    while True:
        other = lines[int(rng.integers(len(lines)))]
        if other["vid_name"] != video:
            return str(other["desc"])


def spoken(
    clips: int, queries: Sequence[Asked], captions: Mapping[str, Matrix], rng: np.random.Generator
) -> Matrix:
    """(T, D): what is said in a video; 0 where nothing is."""
    width = next(iter(captions.values())).shape[0]
    rows = np.zeros((clips, width), np.float32)
    starts = np.arange(clips) * CLIP
    for query in queries:
        if query.says is not None:
            begin, end = query.line["ts"]
            covered = np.clip(np.minimum(starts + CLIP, end) - np.maximum(starts, begin), 0, None)
            said = (covered >= CLIP / 2) & (rng.random(clips) < SPOKEN)
            said[covered.argmax()] |= not said.any()
            rows[said] += captions[query.says]
    names = list(captions)
    for clip in np.flatnonzero(~rows.any(1) & (rng.random(clips) < CHATTER)):
        rows[clip] = captions[names[int(rng.integers(len(names)))]]
    words = rows.any(1)
    rows[words] = _unit(_unit(rows[words]) + NOISE * _unit(rng.standard_normal((int(words.sum()), width))))
    return rows


def _unit(rows: NDArray[Any]) -> Matrix:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float32)


def _vectors(encoder: TextEncoder, texts: Sequence[str]) -> dict[str, Matrix]:
    """The unit vector of each text."""
    found: dict[str, Matrix] = {}
    for begin in range(0, len(texts), AT_A_TIME):
        part = texts[begin : begin + AT_A_TIME]
        found |= dict(zip(part, encoder.encode_text(part), strict=True))
    return found


def _write_tokens(path: Path, queries: Sequence[Asked], encoder: TextEncoder) -> None:
    by_length = sorted(queries, key=lambda one: len(one.line["desc"]))
    with h5py.File(path, "w") as file:
        for begin in range(0, len(by_length), AT_A_TIME):
            part = by_length[begin : begin + AT_A_TIME]
            rows = encode_tokens(encoder, [one.line["desc"] for one in part])
            for one, tokens in zip(part, rows, strict=True):
                file[str(one.line["desc_id"])] = tokens.astype(np.float16)


def main() -> None:
    """Read the simulated files, write those with other queries and other words beside them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rng, encoder = np.random.default_rng(options.seed), open_text_encoder()
    every: list[Asked] = []
    shutil.copyfile(options.features / VIDEO, options.out / VIDEO)
    with h5py.File(options.features / VIDEO) as videos, h5py.File(options.out / SUB, "w") as subtitles:
        for split in ("train", "test"):
            text = (options.features / f"charades_{split}.jsonl").read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text.splitlines()]
            queries = asked(lines, rng)
            captions = _vectors(encoder, sorted({line["desc"] for line in lines}))
            of_video: dict[str, list[Asked]] = defaultdict(list)
            for query in queries:
                of_video[query.line["vid_name"]].append(query)
            for video, its in of_video.items():
                subtitles[video] = spoken(len(videos[video]), its, captions, rng).astype(np.float16)
            told = "".join(json.dumps(query.line, ensure_ascii=False) + "\n" for query in queries)
            (options.out / f"charades_{split}.jsonl").write_text(told, encoding="utf-8")
            every += queries
    _write_tokens(options.out / TOKENS, every, encoder)


if __name__ == "__main__":
    main()
