"""The text files of Charades-STA: one line per sentence, `VIDEO START END##SENTENCE`, times in seconds.

Video lengths are in `Charades_v1_train.csv` and `Charades_v1_test.csv` of the Charades data set (columns
`id`, `length` in seconds), which are read if they are beside the text file. Without them, no moment can be
clipped at its video's end. Query ids are `video#i`, the 0-based index of the sentence within its video.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from whenabouts.intake.files import FormatError, Sign, sibling_file
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import read_text

NAME = "charades"
SIGNS = {"read_annotations": (Sign(line=r"\S+\s+[-+.\d]\S*\s+[-+.\d]\S*\s*##"),)}

_LENGTHS = ("Charades_v1_train.csv", "Charades_v1_test.csv")
"""Files beside the text with the lengths of videos."""
_ACCEPTED = "VIDEO START END##SENTENCE, times in seconds"


def read_annotations(path: Path) -> Annotations:
    """Videos (with durations if known), and a query with one moment per line."""
    lengths: dict[str, float] = {}
    for name in _LENGTHS:
        if csv_file := sibling_file(path, name):
            lengths |= _lengths(csv_file)
    builder = AnnotationBuilder(str(path))
    sentences: dict[str, int] = {}
    # Not splitlines(), which also splits at characters that may occur in sentences.
    for number, line in enumerate(read_text(path).replace("\r\n", "\n").split("\n"), 1):
        if not line.strip():
            continue
        video_id, start, end, sentence = _parts(path, number, line)
        if video_id not in sentences:
            builder.add_video(video_id, lengths.get(video_id))
            if lengths and video_id not in lengths:
                builder.count("videos have no length in the csv beside the text")
        query_id = f"{video_id}#{sentences.get(video_id, 0)}"
        sentences[video_id] = sentences.get(video_id, 0) + 1
        builder.add_query(query_id, sentence)
        builder.judge(query_id, video_id, start, end)
    if not sentences:
        raise FormatError(path, "holds no annotations", accepted=_ACCEPTED)
    return builder.annotations()


def _parts(path: Path, number: int, line: str) -> tuple[str, float, float, str]:
    head, marker, sentence = line.partition("##")
    words = head.split()
    if not marker or len(words) != 3:
        raise FormatError(path, "is not a line of Charades-STA:", line=number, value=line, accepted=_ACCEPTED)
    if not sentence.strip():
        raise FormatError(path, "is empty", line=number, field="SENTENCE", accepted=_ACCEPTED)
    start, end = (_seconds(path, number, *part) for part in (("START", words[1]), ("END", words[2])))
    return words[0], start, end, sentence.strip()


def _seconds(path: Path, line: int, field: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FormatError(
            path, "is not a number:", line=line, field=field, value=text, accepted="finite seconds"
        )
    return value


def _lengths(path: Path) -> dict[str, float]:
    """Video id -> seconds, from a csv of the Charades data set."""
    lengths: dict[str, float] = {}
    rows = csv.DictReader(io.StringIO(read_text(path).replace("\r\n", "\n")))
    try:
        for name in ("id", "length"):
            if name not in (rows.fieldnames or ()):
                raise FormatError(path, "lacks the column", line=1, value=name)
        for row in rows:
            for name in ("id", "length"):
                if row[name] is None:
                    raise FormatError(path, f"has no {name} for this video", line=rows.line_num)
            seconds = _seconds(path, rows.line_num, "length", row["length"])
            if seconds <= 0:
                about = {"field": "length", "value": row["length"], "accepted": "above 0"}
                raise FormatError(path, "is", line=rows.line_num, **about)
            lengths[row["id"]] = seconds
    except csv.Error as error:
        raise FormatError(path, f"is not CSV ({error})", line=rows.line_num) from None
    return lengths
