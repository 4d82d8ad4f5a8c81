"""TVR submissions decoded fast: the outline at once, rows later; anything odd is left to a careful reader."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import cast

import msgspec
import numpy as np

from whenabouts.formats.annotations import Floats, Indices
from whenabouts.formats.runs import Task

_BOM = b"\xef\xbb\xbf"


class Answer(msgspec.Struct, gc=False):
    """An entry of a list; its rows are not yet decoded."""

    desc_id: int | str
    predictions: msgspec.Raw


class _Outline(msgspec.Struct):
    video2idx: dict[str, int]
    VCMR: list[Answer] | None = None
    SVMR: list[Answer] | None = None
    VR: list[Answer] | None = None


_Rows = list[tuple[int, float, float, float]]


def outline(data: bytes) -> tuple[dict[int, str], dict[Task, list[Answer]]] | None:
    """(index -> video name, list -> its answers) of a submission; None where something about it is odd."""
    try:
        data.isascii() or data.decode()
        read = msgspec.json.decode(data.removeprefix(_BOM), type=_Outline)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    videos = {index: name for name, index in read.video2idx.items()}
    lists = {"VCMR": read.VCMR, "SVMR": read.SVMR, "VR": read.VR}
    found = cast(dict[Task, list[Answer]], {task: answers for task, answers in lists.items() if answers})
    sound = len(videos) == len(read.video2idx) and "" not in read.video2idx and bool(videos) and bool(found)
    if not sound or min(videos) < 0 or max(videos) >= 1 << 53:
        return None
    for answers in found.values():
        ids = {str(answer.desc_id) for answer in answers}
        if len(ids) < len(answers) or "" in ids:
            return None
    return videos, found


def rows_of(answers: Sequence[Answer]) -> tuple[Indices, Floats] | None:
    """Lengths (Q,) and rows (N, 4) of some answers; None where a row is odd."""
    decode = msgspec.json.Decoder(_Rows).decode
    try:
        rows = [decode(answer.predictions) for answer in answers]
        numbers = np.fromiter(chain.from_iterable(chain.from_iterable(rows)), np.float64)
    except (msgspec.MsgspecError, RecursionError, OverflowError):
        return None
    return np.array([len(list_) for list_ in rows], np.int64), numbers.reshape(-1, 4)
