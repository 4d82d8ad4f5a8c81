"""Faces in pictures as vectors: a detector like YuNet and an embedder like SFace, two ONNX files.

OpenCV runs both, with its code for these networks (`FaceDetectorYN` and `FaceRecognizerSF`). Nothing is
downloaded, and nothing leaves this machine.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.types import WhenaboutsError
from whenabouts.video.files import content_hash, printable, with_home

LEAST_SCORE = 0.8
"""Faces with a lower detector score (0 to 1) are dropped."""

# The most faces of a frame (the largest), and the least width and height of a face in pixels.
_MOST_FACES, _LEAST_PIXELS = 20, 20
_OVERLAP = 0.3
_DETECTOR_GIVES = {f"{name}_{stride}" for name in ("cls", "obj", "bbox", "kps") for stride in (8, 16, 32)}
_EMBEDDER_TAKES = [3, 112, 112]


class FacesUnavailableError(WhenaboutsError):
    """Face models cannot be used; the message names them, the cause and the remedy."""


class Face(NamedTuple):
    """A face in a picture: left, top, right, bottom as shares of it (0 to 1), and its (D,) unit vector."""

    box: tuple[float, float, float, float]
    vector: NDArray[np.float32]


class FaceFinder:
    """Finds faces with two ONNX files in a folder. Raises FacesUnavailableError without them.

    `name` is the folder's path, `fingerprint` identifies the files, `dimension` is the width of vectors.
    """

    def __init__(self, folder: str | Path) -> None:
        self.name = str(with_home(folder).resolve())
        if importlib.util.find_spec("cv2") is None:
            raise FacesUnavailableError(
                "OpenCV, which finds faces, is not installed; pip install 'whenabouts[people]'"
            )
        detector, embedder = _models_in(Path(self.name))
        self.fingerprint = f"faces={content_hash(detector)[:16]},{content_hash(embedder)[:16]}"
        self._detector, self._embedder = _opened(detector, embedder)
        self.dimension = int(self._embedder.feature(np.zeros((112, 112, 3), np.uint8)).size)

    def faces(self, images: Sequence[NDArray[np.uint8]]) -> list[list[Face]]:
        """The faces in each picture (H, W, 3) RGB, the largest first."""
        return [self._faces_in(np.ascontiguousarray(image[:, :, ::-1])) for image in images]

    def _faces_in(self, image: NDArray[np.uint8]) -> list[Face]:
        height, width = image.shape[:2]
        self._detector.setInputSize((width, height))
        rows = self._detector.detect(image)[1]
        rows = np.zeros((0, 15), np.float32) if rows is None else rows[np.isfinite(rows).all(axis=1)]
        rows = rows[np.minimum(rows[:, 2], rows[:, 3]) >= _LEAST_PIXELS]
        largest = np.argsort(-rows[:, 2] * rows[:, 3], kind="stable")[:_MOST_FACES]
        return [self._face(image, row, width, height) for row in rows[largest]]

    def _face(self, image: NDArray[np.uint8], row: NDArray[np.float32], width: int, height: int) -> Face:
        vector = self._embedder.feature(self._embedder.alignCrop(image, row)).reshape(-1).astype(np.float32)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length):
            raise FacesUnavailableError(
                f"{printable(Path(self.name))}: the embedder gives numbers that are not finite; "
                "the file may be damaged"
            )
        left, top, wide, high = row[:4].tolist()
        corners = np.clip([left / width, top / height, (left + wide) / width, (top + high) / height], 0, 1)
        first, second, third, fourth = corners.tolist()
        return Face((first, second, third, fourth), vector / (length or 1.0))


def _models_in(folder: Path) -> tuple[Path, Path]:
    """The detector and the embedder of a folder, distinguished by their outputs."""
    files = sorted(folder.glob("*.onnx")) if folder.is_dir() else []
    if len(files) != 2:
        raise FacesUnavailableError(
            f"{printable(folder)}: holds {len(files)} ONNX files; name a folder with two: a detector of "
            "faces like YuNet (face_detection_yunet_2023mar.onnx) and an embedder like SFace "
            "(face_recognition_sface_2021dec.onnx)"
        )
    kinds = {_kind(path): path for path in files}
    if len(kinds) < 2:
        raise FacesUnavailableError(
            f"{printable(folder)}: both ONNX files are the same kind, {next(iter(kinds))}; put one detector "
            "and one embedder there"
        )
    return kinds["detector"], kinds["embedder"]


def _kind(path: Path) -> str:
    """Whether an ONNX file is a detector or an embedder of faces, by its inputs and outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own kinds share no other base
        raise FacesUnavailableError(
            f"{printable(path)}: cannot be opened as an ONNX model ({' '.join(str(error).split())[:200]}); "
            "download it again"
        ) from error
    gives, takes = {put.name for put in session.get_outputs()}, session.get_inputs()
    if gives >= _DETECTOR_GIVES:
        return "detector"
    if len(gives) == len(takes) == 1 and list(takes[0].shape[1:]) == _EMBEDDER_TAKES:
        return "embedder"
    raise FacesUnavailableError(
        f"{printable(path)}: takes {', '.join(f'{put.name} {put.shape}' for put in takes)} and gives "
        f"{', '.join(sorted(gives))[:200]}; a detector like YuNet gives cls_8 to kps_32, an embedder like "
        "SFace takes (1, 3, 112, 112) and gives one vector"
    )


def _opened(detector: Path, embedder: Path) -> tuple[Any, Any]:
    # Suppress OpenCV's warnings, which users cannot act on.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")
    import cv2

    try:
        return (
            cv2.FaceDetectorYN.create(str(detector), "", (320, 320), LEAST_SCORE, _OVERLAP),
            cv2.FaceRecognizerSF.create(str(embedder), ""),
        )
    except cv2.error as error:
        reason = " ".join(str(error).split())[:200]
        raise FacesUnavailableError(
            f"{printable(detector.parent)}: OpenCV cannot run these models ({reason})"
        ) from error
