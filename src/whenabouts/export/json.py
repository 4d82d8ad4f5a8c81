"""JSON: the moments as `search --json` prints them, with frame numbers. `--from` reads it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

from whenabouts.export._frames import numbers_of, rate_text
from whenabouts.export.clip import Clip
from whenabouts.export.options import Options
from whenabouts.export.source import file_url, shown_path

NAME = "json"
SUFFIXES = (".json",)
MEDIA_TYPE = "application/json"


def write(clips: Sequence[Clip], out: IO[bytes], options: Options) -> list[str]:
    """One document: query, moments, notes."""
    notes: list[str] = []
    moments = [_moment(clip, options, notes) for clip in clips]
    document = {"query": _shared_query(clips), "moments": moments, "notes": notes}
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    out.write(text.encode("utf-8", "backslashreplace") + b"\n")
    return notes


def _moment(clip: Clip, options: Options, notes: list[str]) -> dict[str, Any]:
    found = numbers_of(clip, options, notes)
    return {
        "rank": clip.rank,
        "video_id": clip.video_id,
        "path": shown_path(clip.path),
        "start": round(float(clip.start), 3),
        "end": round(float(clip.end), 3),
        "score": clip.score,
        "confidence": clip.confidence,
        "text": clip.text,
        "query": clip.query,
        "link": f"{file_url(clip.path)}#t={clip.start:.3f},{clip.end:.3f}",
        "first_frame": None if found is None else found.first,
        "end_frame": None if found is None else found.end,
        "frame_rate": None if found is None else rate_text(found.rate),
        "constant_rate": None if found is None else found.is_constant,
    }


def _shared_query(clips: Sequence[Clip]) -> str:
    queries = {clip.query for clip in clips}
    return queries.pop() if len(queries) == 1 else ""
