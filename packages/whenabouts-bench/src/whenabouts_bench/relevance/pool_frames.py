"""Compute EMScore, how well each query of a data set describes a video, from the frames of its videos.

Frames come from recordings, a feature file, or an indexed corpus. The model that encoded them must encode the
words, too: a corpus has its fingerprint; a feature file is checked by width, and by hash if it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import ImageEncoder, open_image_encoder
from whenabouts.index.store import Store
from whenabouts.streams import frame_stream
from whenabouts.types import UsageError
from whenabouts.video.files import find_files
from whenabouts.video.frames import sample_frames
from whenabouts.video.probe import MediaError, probe
from whenabouts_bench.corpus_run import names_of
from whenabouts_bench.feature_files import FeatureSource, open_features
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.relevance.emscore import EMScore, Frames
from whenabouts_bench.relevance.word_vectors import WordVectors, open_words, query_words

_VIDEOS_AT_ONCE = 64
_FRAMES_AT_ONCE = 32


def files_of_videos(video_ids: Iterable[str], folder: Path) -> Mapping[str, Path]:
    """Video id -> path of the recording below a folder whose name, with or without suffix, is the id.

    Videos without a file are left out. Raises UsageError if the folder does not exist, or two files fit.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder; name the one that holds the recordings")
    named: dict[str, list[Path]] = {}
    for file in find_files([folder]).files:
        for name in {file.path.name, file.path.stem}:
            named.setdefault(name, []).append(file.path)
    files: dict[str, Path] = {}
    for video_id in video_ids:
        fitting = named.get(video_id, [])
        if len(fitting) > 1:
            raise UsageError(
                f"{folder}: {video_id!r} may be {str(fitting[0])!r} or {str(fitting[1])!r}; keep one of them"
            )
        if fitting:
            files[video_id] = fitting[0]
    return files


def video_scorer(
    annotations: Annotations, folder: Path, model: str, most: int, kind: type[Frames] = Frames
) -> tuple[EMScore, str]:
    """(EMScore of the queries on frames of the recordings in a folder, the encoder's fingerprint).

    Takes one frame per second, or `most` frames spread evenly over a longer recording. `model` is any
    image-text model by hub name or folder; `kind` makes the frames. Raises UsageError if a video has no
    recording, MediaError if one cannot be read or has no pictures, EncoderUnavailable for the model.
    """
    files = files_of_videos((video.id for video in annotations.videos), folder)
    _require_all(annotations, set(files), str(folder))
    encoder, words = open_image_encoder(model), open_words(model)
    rows = (_encoded_frames(files[video.id], encoder, most) for video in annotations.videos)
    frames = kind.of(rows, most, encoder.fingerprint)
    return _scorer(annotations, words, frames), _with_words(encoder.fingerprint, words)


def _encoded_frames(path: Path, encoder: ImageEncoder, most: int) -> NDArray[np.float32]:
    """(T, D) vectors of a recording's frames in time order: one a second, or about `most` in all."""
    seconds = probe(path).duration or 0.0
    rate = min(1.0, most / seconds) if seconds else 1.0
    with sample_frames(path, rate, size=encoder.image_size) as reader:
        images = iter(reader)
        parts = []
        while part := [frame.image for frame in islice(images, _FRAMES_AT_ONCE)]:
            parts.append(encoder.encode_images(part))
    if not parts:
        raise MediaError(f"{path.name}: holds no pictures")
    return np.concatenate(parts)


def _with_words(made_by: str, words: WordVectors) -> str:
    """The fingerprint of the frames' encoder, with a note if words are not encoded as EMScore's tokens."""
    return made_by if words.kind == "tokens" else f"{made_by}, words: {words.kind}"


def feature_scorer(
    annotations: Annotations, path: Path, model: str, most: int, kind: type[Frames] = Frames
) -> tuple[EMScore, str]:
    """(EMScore of the queries on a file of features by video id, the fingerprint of their encoder).

    `model` is the image-text model that made them, by hub name or folder. Raises UsageError for features of
    another model and for videos without features, and whatever `open_features` and `open_words` raise.
    """
    with open_features(path) as source:
        clip = open_words(model)
        made_by = _made_by(source, path, clip)
        if source.width != clip.width:
            raise UsageError(
                f"{path}: frames are {source.width} wide, and {clip.name} is a CLIP of {clip.width}: name "
                "the model that made them with --clip"
            )
        _require_all(annotations, set(source.ids()), str(path))
        rows = (_finite(source.get(video.id), video.id, path) for video in annotations.videos)
        frames = kind.of(rows, most, made_by)
    return _scorer(annotations, clip, frames), _with_words(made_by or f"unknown, {source.width} wide", clip)


def _finite(rows: NDArray[Any], video_id: str, path: Path) -> NDArray[Any]:
    """The unchanged rows of a video. Raises UsageError for values that are not finite."""
    if not np.isfinite(rows).all():
        first = int(np.argmin(np.isfinite(rows).all(1)))
        raise UsageError(f"{path}: {video_id}: row {first} is not finite; make the features again")
    return rows


def _made_by(source: FeatureSource, path: Path, clip: WordVectors) -> str:
    """The fingerprint of the features' encoder, "" if unknown. Raises UsageError for other weights' hash."""
    made_by = source.fingerprint
    weights = made_by.weights_sha256
    if weights is not None and weights not in clip.fingerprint:
        raise UsageError(
            f"{path}: was made by {made_by.encoder or 'a model'} with weights {weights[:16]}..., and "
            f"{clip.name} is {clip.fingerprint[:120]}; name the model that made them with --clip"
        )
    return str(made_by.extra.get("fingerprint", ""))


def _require_all(annotations: Annotations, present: set[str], place: str) -> None:
    missing = [video.id for video in annotations.videos if video.id not in present]
    if missing:
        raise UsageError(
            f"{place}: has no frames of {len(missing)} of {len(annotations.videos)} videos of "
            f"{annotations.name}, such as {missing[0]!r}; add them, or leave the visual check out with "
            "--no-visual"
        )


def corpus_scorer(
    annotations: Annotations, corpus: str, most: int, kind: type[Frames] = Frames
) -> tuple[EMScore, str]:
    """(EMScore of the queries on a corpus's pictures, the fingerprint of their encoder).

    A video's id in the data set is its id in the corpus, or its file's name with or without suffix. Raises
    UsageError if a video is missing, if two fit, and if the corpus has no pictures.
    """
    store = Store.open(corpus, create=False)
    stream = frame_stream(store.streams)
    if stream is None:
        raise UsageError(
            f"{corpus}: has no pictures, only words; index it with --vision and a CLIP model, or leave the "
            "visual check out with --no-visual"
        )
    records = [record for record in store.videos() if record.state == "done"]
    names = {called: name for name, called in names_of(records, annotations.videos, corpus).items()}
    _require_all(annotations, set(names), corpus)
    info = store.streams[stream]
    clip = open_words(info.encoder)
    store.check_stream(stream, clip.fingerprint, clip.name)
    rows = _clips(store, stream, [names[video.id] for video in annotations.videos])
    frames = kind.of(rows, most, info.fingerprint)
    return _scorer(annotations, clip, frames), _with_words(info.fingerprint, clip)


def _clips(store: Store, stream: str, names: Sequence[str]) -> Iterator[NDArray[Any]]:
    """(T, D) frame vectors of each video, in time order."""
    for begin in range(0, len(names), _VIDEOS_AT_ONCE):
        part = list(names[begin : begin + _VIDEOS_AT_ONCE])
        block = store.clips_of(stream, part)
        for place, name in enumerate(part):
            rows = block.vectors[block.rows(place)]
            if not len(rows):
                raise UsageError(f"{store.place}: {name!r} has no pictures; index it again, or take it out")
            yield rows


def _scorer(annotations: Annotations, clip: WordVectors, frames: Frames) -> EMScore:
    words, sentence_of = query_words(annotations.queries, clip)
    return EMScore.of(words, frames, sentence_of)
