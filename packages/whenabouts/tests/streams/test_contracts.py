"""What every stream of the folder keeps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from whenabouts.index.reading import FrameBatch, ReadVideo, SoundBatch
from whenabouts.index.records import ClipBlock, ClipColumns, EncoderMismatch, StreamInfo, VideoRecord
from whenabouts.index.stream import Setup, Stream, StreamRun
from whenabouts.streams import all_streams, index_options
from whenabouts.types import Evidence
from whenabouts.video.cue import Cue
from whenabouts.video.faces import Face
from whenabouts.video.voices import RATE, Voices

STREAMS = list(all_streams())
END = 40.0


class AnyEncoder:
    """Encodes texts and images by what they weigh."""

    name, dimension, image_size = "any", 6, 32
    sampling_rate, longest_seconds = 8_000, 10.0
    same_voice = 0.5

    def __init__(self, fingerprint: str = "any@1") -> None:
        self.fingerprint = fingerprint

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._unit([[len(text) + 1, *text.encode()[:5].ljust(5)] for text in texts])

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        return self._unit([[1 + image.mean(), *image.reshape(-1)[:5]] for image in images])

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        return self._unit([[1 + len(samples), *samples[:5]] for samples in sounds])

    def faces(self, images: Sequence[NDArray[np.uint8]]) -> list[list[Face]]:
        """A face in each picture, another one every five."""
        return [
            [Face((0.1, 0.1, 0.5, 0.5), np.eye(6, dtype=np.float32)[row // 5 % 6])]
            for row in range(len(images))
        ]

    def voices(self, samples: NDArray[np.float32], start: float = 0.0) -> Voices:
        """A window a second, of another voice every five."""
        at = np.arange(start, start + len(samples) / RATE, 1.0)
        voices = np.eye(6, dtype=np.float32)[np.arange(len(at)) // 5 % 6]
        return Voices(at, at + 1.0, voices)

    def _unit(self, rows: Any) -> NDArray[np.float32]:
        raw = np.array(rows, np.float32).reshape(-1, 6)
        return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), np.float32)


class Registry:
    """Adopts what fits, as a corpus does."""

    def adopt(self, encoder: Any, info: StreamInfo | None) -> Any:
        if info is not None and info.dimension and info.fingerprint != encoder.fingerprint:
            raise EncoderMismatch(f"{info.name} was made with {info.encoder}")
        return encoder

    def encoder_of(self, info: StreamInfo) -> Any:
        return AnyEncoder(info.fingerprint)


@pytest.fixture(params=STREAMS)
def stream(request: pytest.FixtureRequest) -> Stream:
    return all_streams()[request.param]


def set_up(stream: Stream, info: StreamInfo | None = None, fingerprint: str = "any@1") -> StreamRun | None:
    encoders = {
        option.keyword: AnyEncoder(fingerprint)
        for option in index_options()
        if (option.metavar or "").strip("[]") == "MODEL"
    }
    switch = AnyEncoder(fingerprint) if stream.encoder_kind == "pictures" else True
    switches = {option.keyword: switch for option in stream.options if option.metavar is None}
    return stream.setup(Setup("a corpus", info, encoders | switches, Registry(), []))


def picture_of(text: str, seed: int) -> NDArray[np.uint8]:
    """A picture with a line of text, its colours by chance."""
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", (480, 240), tuple(rng.integers(160, 256, 3).tolist()))
    ImageDraw.Draw(picture).text((20, 90), text, (10, 10, 10), ImageFont.load_default(32))
    return np.asarray(picture)


def made(stream: Stream, cues: Sequence[Cue] = (), seconds: float = END) -> tuple[StreamRun, ClipColumns]:
    """The clips of a video of which the stream is given what it reads."""
    run = set_up(stream)
    assert run is not None
    rng, batches = np.random.default_rng(3), list[Any]()
    if (frames := run.reads.frames) is not None:
        clips = range(int(seconds / frames.clip_seconds))
        words = ("harbour", "engine", "violin", "glacier", "pepper", "lantern", "orchard", "compass")
        images = tuple(picture_of(f"The {words[clip % 8]} of {words[clip // 8 % 8]}", clip) for clip in clips)
        batches += [stream.encode(FrameBatch(frames, tuple(clips), images), run, batches)] if images else []
    if (sound := run.reads.sound) is not None and seconds:
        samples = (rng.normal(size=int(seconds * sound.rate)) / 10).astype(np.float32)
        batches += [stream.encode(SoundBatch(sound, 0.0, samples), run, batches)]
    record = VideoRecord("a", "a.mp4", duration=seconds or None, has_picture=True)
    return run, stream.clips(ReadVideo(record, seconds, cues), batches, run)


CUES = [Cue(float(at), at + 3.5, f"Sentence number {at} of this talk.") for at in range(0, 40, 4)]


def test_it_is_named_after_its_file(stream: Stream) -> None:
    assert type(stream).__module__ == f"whenabouts.streams.{stream.name}"
    assert stream.title and stream.remedy and stream.absent


def test_no_two_streams_take_the_same_option() -> None:
    flags = [option.flag for option in index_options()]
    assert len(flags) == len(set(flags))
    assert all(option.help and option.flag.startswith("--") for option in index_options())


@pytest.mark.slow
def test_the_folder_is_read_without_anything_heavy() -> None:
    heavy = ("torch", "transformers", "onnxruntime", "tokenizers", "lancedb", "pyarrow", "av", "PIL")
    code = (
        "import sys; from whenabouts.streams import all_streams; assert all_streams();"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_clips_lie_in_the_video_in_order_and_have_the_declared_vectors(stream: Stream) -> None:
    run, clips = made(stream, CUES)
    assert len(clips) > 3
    assert (clips.start >= 0).all() and (clips.end <= END + 1e-6).all() and (clips.end > clips.start).all()
    assert (np.diff(clips.start) >= 0).all()
    assert clips.vectors is not None and clips.vectors.shape == (len(clips), run.info.dimension)
    np.testing.assert_allclose(np.linalg.norm(clips.vectors, axis=1), 1, atol=1e-3)
    assert run.info.name == stream.name and run.cost.bytes > 0 and run.cost.seconds > 0
    if stream.has_words is not None and not stream.filter_key:
        assert stream.has_words == any(clips.text or ())


def test_a_file_in_which_there_is_nothing_has_no_clips(stream: Stream) -> None:
    assert len(made(stream, (), 0.0)[1]) == 0


def test_another_encoder_than_the_corpus_has_is_refused(stream: Stream) -> None:
    run = set_up(stream)
    assert run is not None
    again = set_up(stream, run.info)
    assert again is not None and again.info == run.info
    with pytest.raises(EncoderMismatch):
        set_up(stream, run.info, "another@1")


def block_of(*videos: ClipColumns) -> ClipBlock:
    lengths = [len(video) for video in videos]
    vectors = [np.asarray(video.vectors, np.float32).reshape(len(video), -1) for video in videos]
    return ClipBlock(
        [f"video {number}" for number in range(len(videos))],
        np.cumsum([0, *lengths]).astype(np.int64),
        np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        np.concatenate([video.start for video in videos]),
        np.concatenate([video.end for video in videos]),
        [text for video in videos for text in video.text or [""] * len(video)],
        np.concatenate(vectors),
    )


def test_moments_lie_on_the_clips_best_first_whatever_else_is_searched(stream: Stream) -> None:
    clips = made(stream, CUES)[1]
    scores = np.random.default_rng(5).normal(size=len(clips))
    scores[2] = 9.0
    no_shots = (np.zeros(0), np.zeros(2, np.int64))
    alone = stream.moments(block_of(clips), scores, lambda: no_shots)
    assert len(alone) and (np.diff(alone.score) <= 0).all()
    assert (alone.start < alone.end).all()
    assert (alone.start >= clips.start[0]).all() and (alone.end <= clips.end.max()).all()
    assert alone.start[0] <= clips.end[2] and alone.end[0] >= clips.start[2]
    both_shots = (np.zeros(0), np.zeros(3, np.int64))
    both = stream.moments(block_of(clips, clips), np.concatenate([scores, scores - 20]), lambda: both_shots)
    first = both.take(both.video == 0)
    assert first.start.tolist() == alone.start.tolist() and first.score.tolist() == alone.score.tolist()


def test_a_stream_that_no_sentence_finds_narrows_searches_by_labels(stream: Stream) -> None:
    assert stream.meets or stream.filter_key
    if stream.filter_key:
        clips = made(stream, CUES)[1]
        assert all(clips.text or ()) and not any(clips.context or ("",))


def test_no_two_streams_narrow_by_the_same_key() -> None:
    keys = [stream.filter_key for stream in all_streams().values() if stream.filter_key]
    assert len(keys) == len(set(keys))


def test_queries_become_a_vector_each(stream: Stream) -> None:
    assert stream.query_vectors(["a red flower", "rain"], AnyEncoder()).shape == (2, 6)


def test_evidence_is_shown_by_its_text_or_its_place(stream: Stream) -> None:
    assert stream.evidence_text(Evidence(stream.name, 1.0, 65.0, 66.0, "a word")) == "a word"
    assert "1:05" in stream.evidence_text(Evidence(stream.name, 1.0, 65.0, 66.0))
