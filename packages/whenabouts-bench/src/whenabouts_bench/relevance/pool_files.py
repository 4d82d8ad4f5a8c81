"""Read and write pools as files: the JSON of the MVMR release, and our own judgements with pools.jsonl.

Both say how they were made, where readers ignore it: the JSON under "about" of its first video, the
judgements in the first line of pools.jsonl. A pool made without the visual check says so there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from whenabouts.intake.files import write_atomically
from whenabouts.types import Video
from whenabouts_bench.formats import jsonl
from whenabouts_bench.formats.json_writing import write_json_value, write_lines
from whenabouts_bench.formats.mvmr import LISTS
from whenabouts_bench.relevance.pools import Pool, Pools


def write_released(pools: Pools, path: Path) -> None:
    """Write the JSON that `formats/mvmr.py` and the released evaluation read.

    Query ids become `video#i`, i being the place among all sentences of the video: a query that was dropped
    keeps its place, with an empty pool. Times are in seconds, or in frames where `PoolSettings.rate_of`
    gives a rate.
    """
    source, made = pools.source, {pool.query: pool for pool in pools.pools}
    document: dict[str, dict[str, Any]] = {
        video.id: {**{key: [] for key in LISTS}, **_length(video, pools.settings.rate_of(video))}
        for video in source.videos
    }
    document[source.videos[0].id]["about"] = pools.about()
    for query, row in _first_rows(pools).items():
        pool = made.get(query)
        entry = document[_video(pools, row).id]
        entry["timestamps"].append(_span(pools, row))
        entry["sentences"].append(source.queries[query].text)
        entry["pos_moments"].append([] if pool is None else list(_others(pools, pool)))
        entry["retrieval_pool"].append(
            [] if pool is None else [source.videos[video].id for video in pool.videos]
        )
    with write_atomically(path) as stream:
        write_json_value(stream, document)


def _first_rows(pools: Pools) -> dict[int, int]:
    """Query -> its source judgement, for all queries with a relevant moment."""
    rows: dict[int, int] = {pool.query: pool.rows[0] for pool in pools.pools}
    source = pools.source
    for row in np.flatnonzero(source.relevance > 0).tolist():
        rows.setdefault(int(source.query[row]), row)
    return dict(sorted(rows.items()))


def _others(pools: Pools, pool: Pool) -> Iterator[list[Any]]:
    """[video, sentence, [start, end]] of each added positive."""
    source = pools.source
    for row in pool.rows[1:]:
        yield [_video(pools, row).id, source.queries[int(source.query[row])].text, _span(pools, row)]


def _video(pools: Pools, row: int) -> Video:
    return pools.source.videos[int(pools.source.video[row])]


def _length(video: Video, rate: float | None) -> dict[str, Any]:
    if rate is not None:
        return {"fps": rate, "num_frames": video.metadata["num_frames"]}
    return {} if video.duration is None else {"duration": video.duration}


def _span(pools: Pools, row: int) -> list[float]:
    """A moment's times, in the unit of its video."""
    times = [float(pools.source.start[row]), float(pools.source.end[row])]
    rate = pools.settings.rate_of(_video(pools, row))
    return times if rate is None else [_whole(seconds * rate) for seconds in times]


def _whole(number: float) -> float:
    near = round(number)
    return near if abs(number - near) < 1e-3 else number


def write_judgements(pools: Pools, folder: Path) -> None:
    """Write qrels.jsonl, videos.jsonl, queries.jsonl and pools.jsonl of the queries with a pool.

    A line of pools.jsonl also has each positive's video, sentence and similarity.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jsonl.write_annotations(pools.annotations, folder)
    lines = [_line(pools, pool) for pool in pools.pools]
    lines[0]["about"] = pools.about()
    write_lines(folder / "pools.jsonl", lines)


def _line(pools: Pools, pool: Pool) -> dict[str, Any]:
    source = pools.source
    positives = [
        {
            "video_id": _video(pools, row).id,
            "sentence": source.queries[int(source.query[row])].text,
            "similarity": round(value, 4),
        }
        for row, value in zip(pool.rows[1:], pool.similarity[1:], strict=True)
    ]
    return {
        "query_id": source.queries[pool.query].id,
        "video_ids": [source.videos[video].id for video in pool.videos],
        "positives": positives,
    }
