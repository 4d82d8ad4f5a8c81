"""Convert judgements and runs between file formats, and report what the new format loses."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whenabouts.intake.files import FormatError, lmdb_file_in, read_head, refuse_overwriting
from whenabouts.types import UsageError, number_of
from whenabouts.video.aside import check_free
from whenabouts_bench import formats
from whenabouts_bench.formats import jsonl
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.jsonl import FILES, files_of

Kind = Literal["judgements", "run"]

_KEPT = (AnnotationBuilder.EMPTY, AnnotationBuilder.REPEATED_JUDGEMENT, AnnotationBuilder.SEVERAL_GRADES)
"""Odd data that all readers count and leave as they are."""


@dataclass(frozen=True)
class Conversion:
    """A finished conversion."""

    kind: Kind
    source: str
    target: str
    source_format: str
    target_format: str
    queries: int
    rows: int
    """Judgements, or moments (of the first list, if there are several)."""
    losses: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "losses": list(self.losses)}

    def lines(self) -> list[str]:
        return [
            f"{self.source} ({self.kind}, {self.source_format}) -> {self.target} ({self.target_format}): "
            f"{number_of(self.queries, 'query')}, "
            f"{number_of(self.rows, 'judgement' if self.kind == 'judgements' else 'moment')}",
            *(f"lost or changed: {loss}" for loss in self.losses),
        ]


def convert(
    source: str | Path,
    target: str | Path,
    to: str,
    *,
    from_: str | None = None,
    truth: str | Path | None = None,
    force: bool = True,
) -> Conversion:
    """Write a file of judgements or a run in another format, atomically.

    `truth` are the judgements that a run answers: some formats include their texts and videos. A target that
    is a folder, or ends in a slash, gets qrels.jsonl and the files beside it. Raises FormatError, and
    UsageError, also for files that exist if `force` is false.
    """
    file = lmdb_file_in(Path(source)) or Path(source)
    module, kind = _kind_of(file, from_)
    if truth is not None and kind == "judgements":
        raise UsageError(f"--truth goes with a run, and {source} has judgements: leave it out")
    folder = str(target).endswith("/") or Path(target).is_dir()
    target = Path(target)
    if folder and not (to == "jsonl" and kind == "judgements"):
        raise FormatError(target, "is a folder", accepted="the name of a file")
    read = [*files_of(file), *(files_of(Path(truth)) if truth is not None else ())]
    for path in (target / name for name in FILES) if folder else (target,):
        refuse_overwriting(path, *read)
        check_free(path, force=force)
    with _losses(target) as losses:
        if kind == "judgements":
            annotations = module.read_annotations(file)
            kept = _kept(annotations)
            losses += [f"{rule}: {times:,}" for rule, times in annotations.counts.items() if rule not in kept]
            if folder:
                try:
                    target.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise FormatError(target, f"cannot be made: {error.strerror or error}") from None
            elif not len(annotations.queries if to in ("tvr", "qvhighlights") else annotations.query):
                raise UsageError(f"{source}: has no judgement to write; --to jsonl FOLDER/ keeps its queries")
            formats.write_annotations(annotations, target, to)
            counts = (len(annotations.queries), len(annotations.query))
        else:
            answers = formats.read_annotations(truth) if truth is not None else None
            run = formats.open_run(file, module.NAME, answers)
            counts = formats.write_run(run, target, to, answers)
    return Conversion(kind, str(source), str(target), module.NAME, to, *counts, tuple(losses))


def _kept(annotations: Annotations) -> tuple[str, ...]:
    """The odd data that the reader left as it is; late ends are cut by some formats only."""
    seconds = np.array([np.inf if v.duration is None else v.duration for v in annotations.videos])
    are_late = (annotations.end > seconds[annotations.video]).any()
    return (*_KEPT, AnnotationBuilder.CUT) if are_late else _KEPT


def _kind_of(source: Path, name: str | None) -> tuple[Any, Kind]:
    if name in (None, "jsonl") and source.is_dir():
        return jsonl, "judgements"
    head = read_head(source)
    for module in formats.all_formats():
        if name not in (None, module.NAME):
            continue
        reader = formats.reader_of(module, head)
        if reader is None and name is not None:
            if len(module.SIGNS) > 1:
                raise UsageError(
                    f"{source}: {head.describe()} is neither judgements nor a run in the format {name}"
                )
            (reader,) = module.SIGNS
        if reader is not None:
            return module, "judgements" if reader == "read_annotations" else "run"
    if name is not None:
        raise UsageError(f"format {name!r} is not known")
    both = sorted({*formats.format_names("read_annotations"), *formats.format_names("open_run")})
    raise UsageError(
        f"{source}: {head.describe()} is in no format of judgements or runs"
        f"{formats.nearest(head, ['read_annotations', 'open_run'])}; name it with --from, one of "
        + ", ".join(both)
    )


@contextmanager
def _losses(target: Path) -> Iterator[list[str]]:
    """The warnings logged while a file is written, without the file's name."""
    keeper = BufferingHandler(sys.maxsize)
    keeper.setLevel(logging.WARNING)
    logger = logging.getLogger("whenabouts")
    losses: list[str] = []
    logger.addHandler(keeper)
    try:
        yield losses
    finally:
        logger.removeHandler(keeper)
        losses.extend(record.getMessage().removeprefix(f"{target}: ") for record in keeper.buffer)
