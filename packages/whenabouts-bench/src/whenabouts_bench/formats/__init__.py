"""Read and write files of judgements and of runs, in any known format; each format has a file here.

Every module here that declares a `NAME` is a format (see `Format`); a new format is a new file. A format has
the functions that it supports. Unless the caller names a format, the content decides: each format declares
the `SIGNS` of its files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from whenabouts.intake.files import (
    FileHead,
    FormatError,
    Losses,
    Sign,
    json_error,
    lmdb_file_in,
    read_head,
    read_json,
)
from whenabouts.plugins import modules_declaring
from whenabouts.types import UsageError
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.parts import PARTS
from whenabouts_bench.formats.runs import CountedRun, RunSource, saliency_of
from whenabouts_bench.formats.sentence_ids import SentenceRun, with_ids_of

__all__ = ["format_names", "open_run", "read_annotations", "write_annotations", "write_run"]


Reader = Literal["read_annotations", "open_run"]


class Format(Protocol):
    """A file format, with those of the four functions that it supports."""

    NAME: str
    """The name for `--format`."""
    SIGNS: Mapping[Reader, tuple[Sign, ...]]
    """The beginnings of its files, by the function that reads them; no two formats share a sign."""
    KEEPS: frozenset[str]
    """The parts (`PARTS`) that survive writing and reading; others are logged. Changes to a part that is kept
    (rounding, cutting, renaming) are counted by the format."""

    def read_annotations(self, path: Path) -> Annotations:
        """Videos, queries and judgements."""

    def open_run(self, path: Path) -> RunSource:
        """A run, read on demand."""

    def write_annotations(self, annotations: Annotations, path: Path) -> None:
        """Write judgements to a file of this format."""

    def write_run(self, source: RunSource, path: Path, annotations: Annotations | None) -> None:
        """Write a run to a file of this format."""


def all_formats() -> tuple[Any, ...]:
    """The modules of this folder that declare a format; `Any`, as each has only some functions."""
    return modules_declaring(__name__, "NAME", "formats")


def reader_of(module: Any, head: FileHead) -> Reader | None:
    """The function of a format that reads a file with this head; None if it is in another format."""
    signs: Mapping[Reader, tuple[Sign, ...]] = module.SIGNS
    return next((way for way in signs if any(head.has(sign) for sign in signs[way])), None)


def format_names(way: str) -> tuple[str, ...]:
    """Names of the formats with one of the four functions."""
    return tuple(module.NAME for module in all_formats() if hasattr(module, way))


def read_annotations(path: str | Path, format: str | None = None) -> Annotations:
    """Videos, queries and judgements of a file, in any known format, or of a folder with qrels.jsonl.

    Raises FormatError, naming file, line, field and value; UsageError where no format recognises the file.
    """
    module, file = reader_for(path, format)
    annotations: Annotations = module.read_annotations(file)
    return annotations


def reader_for(path: str | Path, format: str | None = None) -> tuple[Any, Path]:
    """(the format that reads a file's judgements, the file); of a folder, its qrels.jsonl."""
    from whenabouts_bench.formats.jsonl import judgements_in  # msgspec is loaded where a file is read

    path = judgements_in(Path(path))
    return _module_for(path, "read_annotations", format), path


def open_run(
    path: str | Path, format: str | None = None, annotations: Annotations | None = None
) -> RunSource:
    """A run, read block by block on demand; a folder of LMDB stands for its file.

    `annotations` are the queries that it answers; a run that describes its queries gets their ids.

    Raises FormatError, with file, line, field and value; UsageError if no format recognises the file.
    """
    source: RunSource = _module_for(path, "open_run", format).open_run(Path(path))
    if annotations is not None and isinstance(source, SentenceRun):
        return with_ids_of(source, annotations)
    return source


def write_annotations(annotations: Annotations, path: str | Path, format: str) -> None:
    """Write judgements; gzip if the path ends in .gz. Nothing is left behind if writing fails.

    Parts that the format does not keep are logged. Judgements of grade 0 are left out if a format has no
    grades.
    """
    module, path = _named(format, "write_annotations"), Path(path)
    losses = losses_of_annotations(annotations, module, path)
    module.write_annotations(without_grades(annotations, keeps_of(module, path)), path)
    losses.log()


def write_run(
    source: RunSource, path: str | Path, format: str, annotations: Annotations | None = None
) -> tuple[int, int]:
    """Write a run; gzip if the path ends in .gz. Nothing is left behind if writing fails.

    `annotations` are the queries that it answers: some formats include their text or order. Parts that the
    format does not keep are logged. Returns the numbers of queries and rows (of the first list).
    """
    module, path = _named(format, "write_run"), Path(path)
    losses, counted = Losses(path), CountedRun(source)
    if "saliency" not in module.KEEPS:
        losses.count(f"{PARTS['saliency']} are left out", len(saliency_of(source)))
    module.write_run(counted, path, annotations)
    queries, rows, confidences = counted.total()
    if "confidences" not in module.KEEPS:
        losses.count(f"{PARTS['confidences']} are left out", confidences)
    losses.log()
    return queries, rows


def keeps_of(module: Any, path: Path) -> frozenset[str]:
    """The parts that a format keeps in a file of that path, or in a folder."""
    kept: frozenset[str] = getattr(module, "KEEPS_IN_FOLDER", module.KEEPS) if path.is_dir() else module.KEEPS
    return kept


def without_grades(annotations: Annotations, keeps: frozenset[str]) -> Annotations:
    """Judgements for a format; without grades, those of grade 0 would become positives."""
    positive = annotations.relevance > 0
    if "grades" in keeps or positive.all():
        return annotations
    return annotations.where(positive)


def losses_of_annotations(annotations: Annotations, module: Any, path: Path) -> Losses:
    """The parts of the judgements that the format does not keep."""
    keeps, losses = keeps_of(module, path), Losses(path)
    in_folder: frozenset[str] = getattr(module, "KEEPS_IN_FOLDER", frozenset())
    if "grades" not in keeps:
        losses.count("judgements of grade 0 are left out", int((annotations.relevance == 0).sum()))
    for part, key, count in _held(without_grades(annotations, keeps)):
        if not keeps & {part, f"{part} {key}"}:
            what = f"{PARTS[part]} {key!r}" if key else PARTS[part]
            hint = " (name a folder to keep them)" if part in in_folder else ""
            losses.count(f"{what} are left out{hint}", count)
    return losses


def _held(annotations: Annotations) -> Iterator[tuple[str, str, int]]:
    """(part, metadata key or "", count) of the parts of judgements."""
    queries, videos = annotations.queries, annotations.videos
    silent = len(queries) - len(np.unique(annotations.query))
    given = annotations.pools.keys() - annotations.search_pools.keys()
    seen = {videos[number].id for number in np.unique(annotations.video).tolist()}
    seen |= {annotations.pools[query_id][0] for query_id in given}
    yield "texts", "", sum(bool(query.text) for query in queries)
    yield "durations", "", sum(video.duration is not None for video in videos)
    yield "grades", "", int((annotations.relevance != 1).sum())
    similarity = np.zeros(0) if annotations.similarity is None else np.isfinite(annotations.similarity)
    yield "similarities", "", int(similarity.sum())
    yield "captions", "", sum(map(bool, annotations.captions or ()))
    yield "pools", "", len(annotations.search_pools)
    yield "most grade", "", int(annotations.most_grade is not None)
    yield "given videos", "", len(given)
    yield "unjudged queries", "", silent - len(given)
    yield "unjudged videos", "", sum(video.id not in seen for video in videos)
    for part, items in (("query metadata", queries), ("video metadata", videos)):
        for key, count in Counter(key for item in items for key in item.metadata).items():
            yield part, key, count


def _named(name: str, way: str) -> Any:
    for module in all_formats():
        if name == module.NAME and hasattr(module, way):
            return module
    raise UsageError(
        f"format {name!r} cannot do that ({way.replace('_', ' ')}); known: {', '.join(format_names(way))}"
    )


def _module_for(path: str | Path, way: str, name: str | None) -> Any:
    if name is not None:
        return _named(name, way)
    head: FileHead = read_head(lmdb_file_in(Path(path)) or Path(path))
    for module in all_formats():
        if hasattr(module, way) and reader_of(module, head):
            return module
    if head.whole and not head.head.strip():
        raise FormatError(Path(path), "is empty", accepted=f"a file in one of {', '.join(format_names(way))}")
    _check_json(head)
    raise _not_known(head, str(path), way)


_CALLED = {"read_annotations": ("judgements", "--truth-format"), "open_run": ("runs", "--run-format")}
"""Function of a format -> the kind of files that it reads, and the option that names their format."""


def _not_known(head: FileHead, path: str, way: str) -> UsageError:
    """The error for a file that no format can read this way; says so if it is of the other kind."""
    what, option = _CALLED.get(way, ("files", "--format"))
    names = ", ".join(format_names(way))
    for other, (kind, _) in _CALLED.items():
        for module in all_formats() if other != way else ():
            if hasattr(module, other) and reader_of(module, head):
                pools = "; a file of pools goes to --pools" if kind == "judgements" else ""
                return UsageError(
                    f"{path}: is a file of {kind} ({module.NAME}); accepted here: {what} ({names}){pools}"
                )
    near = nearest(head, [way])
    return UsageError(
        f"{path}: {head.describe()} is in no format that is known for {what} ({names}){near}; "
        f"if it is in one of them, name it: {option} of `whenabouts evaluate`, or `whenabouts convert {path} "
        "OUT.jsonl --to jsonl --from NAME`, whose file every command reads"
    )


def nearest(head: FileHead, ways: Sequence[str]) -> str:
    """Error text: the keys that a file lacks to fit the most similar formats; "" if no format is similar."""
    lacking: list[tuple[float, str]] = []
    for module in all_formats():
        for sign in (sign for way in ways for sign in module.SIGNS.get(way, ())):
            needed = set(sign.keys.split())
            missing = [key for key in sign.keys.split() if key not in head.keys]
            if missing and len(missing) < len(needed) and head.keys.isdisjoint(sign.without.split()):
                keys = " and ".join(repr(key.rpartition("/")[2]) for key in missing)
                lacking.append((len(missing) / len(needed), f"{keys} to be {module.NAME}"))
    fewest = min(lacking, default=(0.0, ""))[0]
    return "".join(
        f"{', or' if number else '; it lacks'} {what}"
        for number, what in enumerate(dict.fromkeys(what for share, what in lacking if share == fewest))
    )


def _check_json(head: FileHead) -> None:
    """Raise FormatError with the position where a JSON file is broken, which no format recognises."""
    if not head.is_json_document:
        return
    if head.suffix != ".jsonl":
        read_json(head.path)
        return
    if not head.whole and b"\n" not in head.head.strip():
        return  # the first line is longer than the head
    try:
        json.loads(head.first_line)
    except (ValueError, RecursionError) as error:
        raise json_error(head.path, error, line=1) from None
