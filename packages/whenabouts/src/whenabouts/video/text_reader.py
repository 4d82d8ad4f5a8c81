"""The text in a picture, line by line, with the extra `screen` (rapidocr).

PP-OCR finds and reads lines. Its networks are loaded from rapidocr's wheel by path, so nothing is downloaded.
They read Latin, Chinese and Japanese characters; other scripts give noise or nothing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.resident import trim_heap
from whenabouts.types import WhenaboutsError

Box = tuple[float, float, float, float]
"""Left, top, right, bottom as shares (0 to 1) of the picture's width and height."""

LONGEST_SIDE = 640
"""Longer sides are scaled down to so many pixels to find lines (`benchmarks/screen_text.py`)."""

LEAST_SCORE = 0.7
"""Lines with a lower certainty (0 to 1, mean over characters) are dropped."""

# Pictures with a side of fewer pixels, or with a larger ratio of sides, are not read: rapidocr enlarges them.
_LEAST_SIDE, _MOST_ASPECT = 16, 12
_FILES = {
    "Det": "PP-OCRv6_det_small.onnx",
    "Rec": "PP-OCRv6_rec_small.onnx",
    # Whether a line stands upside down.
    "Cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
}


class TextReaderUnavailableError(WhenaboutsError):
    """Text cannot be read here; the message says what is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line: its text, the reader's certainty (0 to 1), and its place."""

    text: str
    score: float
    box: Box


def why_unavailable() -> str | None:
    """Why text cannot be read here, or None if it can. Checks without importing."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or spec.origin is None:
        return "reading text on the screen is not installed; `pip install 'whenabouts[screen]'`"
    models = Path(spec.origin).parent / "models"
    if missing := [name for name in _FILES.values() if not (models / name).is_file()]:
        return (
            f"rapidocr {importlib.metadata.version('rapidocr')} lacks {', '.join(missing)}; install the "
            "version that carries them: `pip install 'whenabouts[screen]'`"
        )
    return None


class TextReader:
    """Reads pictures with `threads` threads; making one raises TextReaderUnavailableError.

    Readers with different fingerprints (version of rapidocr, settings) may read differently.
    """

    def __init__(self, threads: int = 1, longest_side: int | None = None) -> None:
        if (reason := why_unavailable()) is not None:
            raise TextReaderUnavailableError(reason)
        version = importlib.metadata.version("rapidocr")
        longest_side = LONGEST_SIDE if longest_side is None else longest_side
        self.fingerprint = f"rapidocr={version} side={longest_side} score={LEAST_SCORE:g}"
        self._threads = threads
        self._longest_side = longest_side

    def read(self, pictures: Sequence[NDArray[np.uint8]]) -> list[list[TextLine]]:
        """The lines of each picture (H, W, 3) RGB, from top to bottom."""
        if not pictures:
            return []
        engine = self._engine  # opened before the threads start
        # One thread per picture: several for one would take 1.5 times the processor time, by waiting.
        with ThreadPoolExecutor(min(self._threads, len(pictures))) as pool:
            lines = list(pool.map(partial(_lines, engine), pictures))
        # Buffers differ with each size of picture and line; freed ones would fragment the heap.
        trim_heap()
        return lines

    @cached_property
    def _engine(self) -> Any:
        import rapidocr

        folder = Path(rapidocr.__file__).parent / "models"
        paths = {f"{part}.model_path": str(folder / name) for part, name in _FILES.items()}
        settings = {
            "Global.log_level": "critical",
            "Global.text_score": LEAST_SCORE,
            "Det.limit_side_len": self._longest_side,
            "Det.limit_type": "max",
            # A batch is padded to its longest line: single lines take less time and memory.
            "Rec.rec_batch_num": 1,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
        }
        return rapidocr.RapidOCR(params={**paths, **settings})


def _lines(engine: Any, picture: NDArray[np.uint8]) -> list[TextLine]:
    height, width = picture.shape[:2]
    if min(height, width) < _LEAST_SIDE or max(height, width) > _MOST_ASPECT * min(height, width):
        return []
    read = engine(np.ascontiguousarray(picture[:, :, ::-1]))  # BGR, as in OpenCV
    if not read.txts:
        return []
    return [
        TextLine(" ".join(text.split()), float(score), _box(corners, width, height))
        for corners, text, score in zip(read.boxes, read.txts, read.scores, strict=True)
    ]


def _box(corners: NDArray[np.float32], width: int, height: int) -> Box:
    """The bounding box of four corners (4, 2) in pixels."""
    size = np.array([width, height])
    left, top = np.clip(corners.min(axis=0) / size, 0, 1).tolist()
    right, bottom = np.clip(corners.max(axis=0) / size, 0, 1).tolist()
    return left, top, right, bottom
