"""The stream of faces: finds people in videos by their faces, with models that the user names.

A clip is one sighting of a person, labelled "face 1 (VIDEO_ID)" until the user names the person. Without
models the stream is off; docs/people.md says whose consent it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from whenabouts.encoders.protocol import EncoderUnavailable, unit_length
from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipColumns, StreamInfo
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Cost, Option, Reads, Setup, Stream, StreamRun, label_in
from whenabouts.streams._choices import made_by, own_encoder
from whenabouts.streams._clusters import clusters
from whenabouts.video.faces import Face, FaceFinder, FacesUnavailableError

FRAME_SECONDS = 1.0
SAME_FACE = 0.363
"""Faces with at least this mean cosine are one person: OpenCV's value for SFace, not measured by us."""

_FRAME_SIZE = 480
# A person's sighting goes on over gaps of at most this many frames between two of its faces.
_SAME_SIGHTING = 2
# Estimate for an hour of video: 40 s on one core with tiny models (benchmarks/people.py), real ones guessed.
_COST = Cost(seconds=300.0, bytes=0.5e6)


class _Seen(NamedTuple):
    """A face, and the number of the frame that shows it."""

    frame: int
    face: Face


class FaceStream(Stream):
    """The stream of the people seen in videos, each recognised by the face."""

    name = "face"
    title = "faces"
    order = 50
    encoder_kind = "pictures"
    meets = frozenset()
    has_words = False
    filter_key = "person"
    is_personal = True
    options = (
        Option(
            "--faces",
            "MODEL",
            "who is seen: a folder with the ONNX files of a face detector and a face embedder; the people in "
            "the videos must consent (docs/people.md)",
        ),
    )
    remedy = "index with --faces MODEL"
    absent = "no face was found there"

    def setup(self, setup: Setup) -> StreamRun | None:
        if (finder := own_encoder(setup, "faces", self.open_encoder)) is None:
            return None
        settings = {"frame_seconds": FRAME_SECONDS, "same_person": SAME_FACE}
        return StreamRun(
            self,
            StreamInfo(self.name, *made_by(finder), settings),
            finder,
            Reads(frames=FrameSettings(FRAME_SECONDS, _FRAME_SIZE)),
            _COST,
        )

    def open_encoder(self, name: str) -> FaceFinder:
        try:
            return FaceFinder(name)
        except FacesUnavailableError as error:
            raise EncoderUnavailable(str(error)) from error

    def encode(self, batch: FrameBatch | SoundBatch, run: StreamRun, kept: Sequence[Any]) -> list[_Seen]:
        """The faces in the frames of a batch, each with its frame's number; frames are not kept."""
        assert isinstance(batch, FrameBatch)
        faces = run.encoder.faces(batch.images)
        return [
            _Seen(frame, face)
            for frame, faces_of_frame in zip(batch.clips, faces, strict=True)
            for face in faces_of_frame
        ]

    def clips(self, video: ReadVideo, batches: Sequence[Any], run: StreamRun) -> ClipColumns:
        """A clip per sighting, to its last frame's end: unit mean of its faces, box of the middle one."""
        seen = [face for batch in batches for face in batch]
        if not seen:
            return ClipColumns(np.zeros(0), np.zeros(0), [], None)
        vectors = np.stack([sighting.face.vector for sighting in seen])
        sightings = _sightings(seen, vectors)
        means = np.stack([vectors[rows].sum(axis=0) for _, rows in sightings])
        start = np.array([seen[rows[0]].frame for _, rows in sightings]) * FRAME_SECONDS
        last = np.array([seen[rows[-1]].frame for _, rows in sightings]) * FRAME_SECONDS
        return ClipColumns(
            start,
            np.maximum(np.minimum(last + FRAME_SECONDS, video.end), last + FRAME_SECONDS / 100),
            [label_in(f"face {number + 1}", video.record.video_id) for number, _ in sightings],
            unit_length(means),
            [""] * len(sightings),
            np.array([seen[rows[len(rows) // 2]].face.box for _, rows in sightings], np.float32),
        )


def _sightings(seen: Sequence[_Seen], vectors: Any) -> list[tuple[int, list[int]]]:
    """(person's number, indices of the faces in `seen`) of each sighting, in order of start."""
    sightings: list[tuple[int, list[int]]] = []
    latest: dict[int, list[int]] = {}
    for row, number in enumerate(clusters(vectors, SAME_FACE).tolist()):
        rows = latest.get(number)
        if rows is None or seen[row].frame - seen[rows[-1]].frame > _SAME_SIGHTING:
            rows = latest[number] = []
            sightings.append((number, rows))
        rows.append(row)
    return sightings


STREAM = FaceStream()
