"""Read files of queries, to run systems on queries that nobody judged."""

from __future__ import annotations

from pathlib import Path

import msgspec

from whenabouts.intake.files import FormatError, Sign, open_unpacked, read_head
from whenabouts_bench import formats
from whenabouts_bench.formats import charades_text, jsonl
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.json_records import Words, numbered_lines, read_records


def read_queries(path: str | Path) -> Annotations:
    """Queries with an id and words, from a file.

    Accepted are judgements in any format with texts (including the videos that they name); our queries.jsonl;
    other plain text (`.txt`), a query per line, with line numbers from 1 as ids; and questions as for
    `calibrate --queries` (JSON lines of `query`, `video`, `start`, `end`), numbered from 1. Raises
    FormatError for a query without words or an empty file; UsageError if no format recognises the file.
    """
    path = Path(path)
    head = None if path.is_dir() else read_head(path)
    if head is not None and head.suffix == ".txt" and not formats.reader_of(charades_text, head):
        annotations = _lines(path)
    elif head is not None and jsonl.holds_queries(head):
        annotations = jsonl.read_queries(path)
    elif head is not None and head.has(Sign("query video start end", without="query_id qid")):
        annotations = _questions(path)
    else:
        annotations = formats.read_annotations(path)
    return with_words(annotations, path)


def with_words(annotations: Annotations, place: str | Path) -> Annotations:
    """The annotations. Raises FormatError if there is no query, or one without words, which it names."""
    if not annotations.queries:
        raise FormatError(place, "has no queries", accepted="at least one query with its words")
    silent = next((query.id for query in annotations.queries if not query.text.strip()), None)
    if silent is not None:
        accepted = "a file with the words of its queries"
        raise FormatError(place, f"query {silent!r} has no words", accepted=accepted)
    return annotations


class _Question(msgspec.Struct):
    query: Words


def _questions(path: Path) -> Annotations:
    builder = AnnotationBuilder(str(path))
    for number, (origin, fields) in enumerate(read_records(path), 1):
        builder.add_query(str(number), origin.convert(fields, _Question).query)
    return builder.annotations()


def _lines(path: Path) -> Annotations:
    builder = AnnotationBuilder(str(path))
    with open_unpacked(path) as stream:
        for number, line in numbered_lines(stream, path):
            try:
                text = line.decode("utf-8").strip()
            except UnicodeDecodeError:
                raise FormatError(path, "is not UTF-8", line=number, accepted="plain text in UTF-8") from None
            builder.add_query(str(number), text)
    return builder.annotations()
