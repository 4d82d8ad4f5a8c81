"""The text files of Charades-STA: one line a sentence, `VIDEO START END##SENTENCE`, times in seconds.

The files do not say how long the videos are. `Charades_v1_train.csv` and `Charades_v1_test.csv` of the
Charades data set do (columns `id`, `length` in seconds); they are read where they lie beside the text file.
Without them the videos have no duration, and no moment can be cut at its video's end.
A query's id is `video#i`, i counting the video's sentences in the order of the file, from 0.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from whenabouts.intake.files import FormatError, Sign, read_document, sibling_file
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations

NAME = "charades"
SUMMARY = "VIDEO START END##SENTENCE (the original Charades-STA text)"
SIGNS = {"read_annotations": (Sign(line=r"\S+\s+[-+.\d]\S*\s+[-+.\d]\S*\s*##"),)}

LENGTHS = ("Charades_v1_train.csv", "Charades_v1_test.csv")
"""Files beside the text that say how long the videos are."""
NO_LENGTH = "videos have no length in the csv beside the text"

_ACCEPTED = "VIDEO START END##SENTENCE, times in seconds"


def read_annotations(path: Path) -> Annotations:
    """Videos (with durations where a csv is beside it), a query for each line, and its one moment."""
    lengths = _lengths_beside(path)
    builder = AnnotationBuilder(str(path))
    sentences: dict[str, int] = {}
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        video_id, start, end, sentence = _parts(path, number, line)
        if video_id not in sentences:
            builder.add_video(video_id, lengths.get(video_id))
            if lengths and video_id not in lengths:
                builder.count(NO_LENGTH)
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
    start = _seconds(path, number, "START", words[1])
    end = _seconds(path, number, "END", words[2])
    return words[0], start, end, sentence.strip()


def _seconds(path: Path, line: int, field: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FormatError(
            path, "is no number:", line=line, field=field, value=text, accepted="finite seconds"
        )
    return value


def _lines(path: Path) -> list[str]:
    data = read_document(path)
    try:
        # Not splitlines(): it also breaks at letters that may stand inside a sentence.
        return data.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError(
            path, f"is not UTF-8 text (byte {error.start})", line=data.count(b"\n", 0, error.start) + 1
        ) from None


def _lengths_beside(path: Path) -> dict[str, float]:
    lengths: dict[str, float] = {}
    for name in LENGTHS:
        if csv_file := sibling_file(path, name):
            lengths.update(read_lengths(csv_file))
    return lengths


def read_lengths(path: Path) -> dict[str, float]:
    """Video id -> seconds, from a csv of the Charades data set."""
    lengths: dict[str, float] = {}
    rows = csv.DictReader(io.StringIO("\n".join(_lines(path))))
    try:
        for row in rows:
            if row.get("id") is None or row.get("length") is None:
                columns = ", ".join(map(str, rows.fieldnames or ()))[:80]
                raise FormatError(
                    path,
                    "has no",
                    line=rows.line_num,
                    field="id, length",
                    value=columns,
                    accepted="both columns",
                )
            seconds = _seconds(path, rows.line_num, "length", row["length"])
            if seconds <= 0:
                raise FormatError(
                    path, "is", line=rows.line_num, field="length", value=row["length"], accepted="above 0"
                )
            lengths[row["id"]] = seconds
    except csv.Error as error:
        raise FormatError(path, f"is not CSV ({error})", line=rows.line_num) from None
    return lengths
