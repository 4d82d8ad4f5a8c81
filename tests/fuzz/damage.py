"""A corpus damaged by chance: reading it says so, or gives what was written, by checksums of its rows."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
from tests.fuzz.bytes import damaged

from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts.types import WhenaboutsError

_WIDTH = 16
_STREAM = StreamInfo("subtitle", "mini", "mini@1", _WIDTH)


def make_corpus(place: Path) -> None:
    """Forty videos of several clips, with vectors and words, some written twice."""
    store = Store.open(place, create=True)
    store.add_stream(_STREAM)
    rng = np.random.default_rng(7)
    for number in [*range(40), *range(0, 40, 3)]:
        count = 3 + number % 5
        vectors = rng.standard_normal((count, _WIDTH)).astype(np.float32)
        lines = [f"line {line} of video {number} says something" for line in range(count)]
        columns = ClipColumns(np.arange(count) * 1.0, np.arange(count) + 1.0, lines, vectors)
        record = VideoRecord(
            f"v{number:03d}", f"/videos/{number}.mp4", 10, 20, "hash", duration=float(count),
            streams={"subtitle": "mini@1"}, title=f"Video {number}", metadata={"number": number},
        )  # fmt: skip
        store.put_video(record, {"subtitle": columns})
    store.optimize(force=True)


def checksums(place: Path) -> dict[str, str]:
    """A checksum of each row of the ledger, of each video's clips, and of some answers."""
    store = Store.open(place)
    sums = {}
    records = store.videos()
    for record in records:
        row = {name: getattr(record, name) for name in record.__slots__}
        row["streams"], row["metadata"] = dict(record.streams), dict(record.metadata)
        sums[f"row {record.video_id}"] = digest(json.dumps(row, sort_keys=True, default=str))
    block = store.clips_of("subtitle", [record.video_id for record in records])
    for position, video_id in enumerate(block.video_ids):
        rows = block.rows(position)
        clips = [column[rows] for column in (block.start, block.end, block.text, block.vectors)]
        sums[f"clips {video_id}"] = digest(
            *(np.asarray(part).tobytes() for part in clips[:2] + clips[3:]), *clips[2]
        )
    nearest = store.nearest("subtitle", np.arange(_WIDTH, dtype=np.float32), 20)
    words = store.match_text("subtitle", "line 2 of video 7", 20)
    for name, hits in (("nearest", nearest), ("words", words)):
        sums[name] = digest(*map(str, hits.video_ids), hits.index.tobytes(), hits.score.round(4).tobytes())
    return sums


def digest(*parts: str | bytes) -> str:
    """A checksum of some parts."""
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        made.update(part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass"))
        made.update(b"\0")
    return made.hexdigest()


class Attack:
    """Damages one file of a corpus a trial."""

    def __init__(self, folder: Path) -> None:
        self._whole, self._place = folder / "whole.corpus", folder / "damaged.corpus"
        make_corpus(self._whole)
        self._right = checksums(self._whole)

    def try_once(self, rng: random.Random) -> tuple[Counter[str], list[str]]:
        """Damage a file of a copy and read all of it."""
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(self._whole, self._place)
        files = sorted(path for path in self._place.rglob("*") if path.is_file())
        path, other = rng.choice(files), rng.choice(files)
        before = path.read_bytes()
        if rng.random() < 0.1:
            path.unlink()
            way = "deleted"
        else:
            data, way = damaged(before, rng, other.read_bytes())
            path.write_bytes(data)
        where = f"{way} {path.relative_to(self._place).parent}"
        try:
            now = checksums(self._place)
        except WhenaboutsError:
            return Counter({"said so": 1}), []
        wrong = sorted(name for name in self._right if now.get(name) != self._right[name])
        if wrong or len(now) != len(self._right):
            return Counter({"silently wrong": 1}), [f"{where}: {len(wrong)} wrong, such as {wrong[:3]}"]
        return Counter({"right": 1}), []
