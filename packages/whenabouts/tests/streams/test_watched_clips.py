"""Clips watched as video: what no single frame can tell is found, by an encoder of known meaning."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.streams.test_contracts import Registry
from tests.streams.test_sound import named
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.encoders.protocol import ClipSettings, EncoderOutOfMemory, VideoClip
from whenabouts.index.reading import FrameBatch, ReadVideo
from whenabouts.index.records import EncoderMismatch, StreamInfo, VideoRecord
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Setup
from whenabouts.indexing import plan_index, run_index
from whenabouts.streams._watched_clips import Window, watched, watched_clips
from whenabouts.streams.vision import STREAM
from whenabouts.types import UsageError

TEXTS = ("it moves to the left", "it moves to the right", "nothing moves")


class Motion:
    """An encoder with known meaning: which way the bright part of a clip goes; of one frame, nothing."""

    name, fingerprint, dimension, image_size = "motion", "motion:1", 3, 32
    clip_settings = ClipSettings(frames=8, seconds=4.0, step_seconds=2.0, size=48, cost_seconds=0.5)

    def encode_clips(self, clips: Sequence[VideoClip]) -> NDArray[np.float32]:
        return self._unit([self._way(clip) for clip in clips])

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        return self._unit([self._way(VideoClip([image], [0.0])) for image in images])

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._unit([[text == known for known in TEXTS] for text in texts])

    def _way(self, clip: VideoClip) -> list[float]:
        assert len(clip.frames) == len(clip.times) and list(clip.times) == sorted(clip.times)
        places = [image.mean(axis=(0, 2)) @ np.arange(image.shape[1]) / image.sum() for image in clip.frames]
        step = float(np.mean(np.diff(places))) if len(places) > 1 else 0.0
        return [max(0.0, -step), max(0.0, step), 2.0]

    def _unit(self, rows: Any) -> NDArray[np.float32]:
        raw = np.array(rows, np.float32).reshape(-1, self.dimension) + np.float32(1e-6)
        return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), np.float32)


class Greedy(Motion):
    """It has no memory for eight frames."""

    def encode_clips(self, clips: Sequence[VideoClip]) -> NDArray[np.float32]:
        if any(len(clip.frames) > 4 for clip in clips):
            raise EncoderOutOfMemory("out of memory; take fewer frames a clip (--clip-frames) than motion")
        return super().encode_clips(clips)


def film(path: Path, place: str, seconds: float = 40.0) -> Path:
    """A white square on black; `place` says from 0 to 1 where it is at `t`."""
    sources = ["-f", "lavfi", "-i", f"color=black:s=96x64:r=10:d={seconds}"]
    sources += ["-f", "lavfi", "-i", f"color=white:s=16x16:r=10:d={seconds}"]
    graph = f"[0:v][1:v]overlay=x='80*({place})':y=24:eval=frame[v]"
    command = [*sources, "-filter_complex", graph, "-map", "[v]", "-pix_fmt", "yuv420p", str(path)]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *command], check=True)
    return path


# To the right from 10 to 16 seconds, back to the left from 26 to 32: each place is seen on both ways.
THERE_AND_BACK = "clip((t-10)/6,0,1)-clip((t-26)/6,0,1)"
TIMES = {TEXTS[1]: (10.0, 16.0), TEXTS[0]: (26.0, 32.0)}


def indexed(place: Path, *films: Path, encoder: Any = None, **options: Any) -> Corpus:
    encoder = encoder or Motion()
    corpus = Corpus(place, create=True, encoders=[encoder])
    with uncalibrated():
        run_index(corpus, plan_index(corpus, films, vision=encoder, **options), processes=1)
    return corpus


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("motion")
    still = film(folder / "still.mp4", "0.5", 12.0)
    return [film(folder / "there_and_back.mp4", THERE_AND_BACK), still]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, films: list[Path]) -> Corpus:
    return indexed(tmp_path_factory.mktemp("watched") / "corpus", *films)


@pytest.mark.parametrize("text", TIMES)
def test_a_motion_is_found_where_it_is(corpus: Corpus, text: str) -> None:
    found = corpus.search(text, k=1).moments[0]
    start, end = TIMES[text]
    assert named(corpus, found.moment.video_id) == "there_and_back.mp4"
    assert abs(found.moment.start - start) <= 2.0 and abs(found.moment.end - end) <= 2.0
    assert set(found.evidence) == {"vision"}


def test_single_frames_cannot_tell_one_way_from_the_other(tmp_path: Path, films: list[Path]) -> None:
    corpus = indexed(tmp_path / "corpus", *films, clip_frames=1)
    assert dict(corpus.store.streams["vision"].settings) == {"clip_seconds": 1.0, "frame_at": 0.5}
    left, right = (
        [(each.moment, round(each.score, 6)) for each in corpus.search(text, k=5).moments] for text in TIMES
    )
    assert left == right


def test_how_clips_are_watched_stands_in_the_corpus_and_stays(corpus: Corpus, films: list[Path]) -> None:
    info = corpus.store.streams["vision"]
    assert dict(info.settings) == {"clip_seconds": 2.0, "clip_frames": 8, "window_seconds": 4.0}
    assert "clip_frames=8" in corpus.resolve("still.mp4").streams["vision"]
    plan = plan_index(corpus, films)
    assert not plan.work
    with pytest.raises(EncoderMismatch, match="8 frames a clip, not 4; leave --clip-frames out"):
        plan_index(corpus, films, clip_frames=4)
    with pytest.raises(EncoderMismatch, match="every 2 s, not every 1 s"):
        plan_index(corpus, films, clip_seconds=1.0)
    plan = plan_index(Corpus(corpus.location + "-new", create=True), films, vision=Motion(), clip_frames=16)
    (run,) = (run for run in plan.streams if run.name == "vision")
    assert run.reads.frames == FrameSettings(0.25, 48) and run.cost.seconds == 1800.0


def test_a_clip_has_its_middle_frame_but_in_a_corpus_that_has_the_first() -> None:
    """Its settings say nothing of it, as before there was a choice."""
    taken = []
    for settings in (None, {"clip_seconds": 2.0}, {"clip_seconds": 2.0, "frame_at": 0.5}):
        info = None if settings is None else StreamInfo("vision", "motion", "motion:1", 3, settings)
        setup = Setup(
            "a corpus", info, {"vision": Motion(), "clip_seconds": 2.0, "clip_frames": 1}, Registry(), []
        )
        run = STREAM.setup(setup)
        assert run is not None and isinstance(run.reads.frames, FrameSettings)
        taken.append((run.reads.frames.at, run.info.settings.get("frame_at", 0.0)))
    assert taken == [(0.5, 0.5), (0.0, 0.0), (0.5, 0.5)]


def test_a_model_of_single_frames_is_not_asked_to_watch(tmp_path: Path, films: list[Path]) -> None:
    from tests.toy_encoders import Shades

    corpus = Corpus(tmp_path / "corpus", create=True)
    with pytest.raises(UsageError, match="shades looks at single frames; leave it out"):
        plan_index(corpus, films, vision=Shades(), clip_frames=8)
    for frames in (0, 65, 2.7):
        with pytest.raises(UsageError, match="a whole number from 1 to 64"):
            plan_index(corpus, films, vision=Motion(), clip_frames=frames)


@pytest.mark.slow
def test_a_file_that_needs_too_much_memory_fails_with_the_remedy_which_helps(
    tmp_path: Path, films: list[Path]
) -> None:
    failed = indexed(tmp_path / "first", films[1], encoder=Greedy())
    (record,) = failed.store.videos()
    assert (record.state, "take fewer frames a clip (--clip-frames)" in record.error) == ("failed", True)
    helped = indexed(tmp_path / "second", films[1], encoder=Greedy(), clip_frames=4)
    assert [record.state for record in helped.store.videos()] == ["done"]


def numbered(count: int) -> list[NDArray[np.uint8]]:
    return [np.full((4, 6, 3), number, np.uint8) for number in range(count)]


class Reader:
    """It keeps the clips that it is given: which frames, by their shade, and when."""

    dimension = 2

    def __init__(self) -> None:
        self.clips: list[tuple[list[int], list[float]]] = []

    def encode_clips(self, clips: Sequence[VideoClip]) -> NDArray[np.float32]:
        self.clips += [([int(frame[0, 0, 0]) for frame in clip.frames], list(clip.times)) for clip in clips]
        return np.array(
            [[len(self.clips) - len(clips) + place, 1] for place in range(len(clips))], np.float32
        )


def clips_in(batches: Sequence[range], shown: Sequence[int], end: float, window: Window) -> tuple[Any, Any]:
    """The clips of frames that come in batches; `shown` are the numbers at which a new frame is shown."""
    images, reader, kept = numbered(max(shown) + 1), Reader(), list[Any]()
    for batch in batches:
        numbers = tuple(shown[place] for place in batch)
        frames = FrameBatch(
            FrameSettings(window.frame_seconds, 4), numbers, tuple(images[n] for n in numbers)
        )
        now = watched(frames, window, reader, kept[-1] if kept else None)
        kept[-1:] = [each.settled() for each in kept[-1:]]
        kept.append(now)
    video = ReadVideo(VideoRecord("a", "a.mp4", duration=end, has_picture=True), end)
    return reader.clips, watched_clips(video, kept, window, reader)


def test_clips_are_the_same_however_the_frames_come() -> None:
    rng = np.random.default_rng(8)
    for window in (Window(2.0, 4.0, 8), Window(1.0, 3.0, 5), Window(2.0, 2.0, 4), Window(0.7, 1.4, 6)):
        shown = sorted(rng.choice(90, 60, replace=False).tolist())
        end = shown[-1] * window.frame_seconds + 1.3
        whole, columns = clips_in([range(60)], shown, end, window)
        cuts = [0, *sorted(rng.choice(range(1, 60), 7, replace=False).tolist()), 60]
        pieces = [range(first, last) for first, last in pairwise(cuts)]
        parts, others = clips_in(pieces, shown, end, window)
        assert parts == whole and others.start.tolist() == columns.start.tolist()
        np.testing.assert_array_equal(columns.vectors[:, 0], np.arange(len(columns)))
        assert columns.end.tolist() == pytest.approx([*columns.start[1:], end])


def test_a_clip_shows_what_is_on_the_screen_around_it_at_each_of_its_times() -> None:
    clips, columns = clips_in([range(5)], [0, 3, 4, 9, 14], 10.0, Window(2.0, 4.0, 8))
    assert columns.start.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert clips[0] == ([0, 0, 0, 0, 0, 3, 4, 4], [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    assert clips[2][0] == [4, 4, 4, 9, 9, 9, 9, 9] and clips[4][0] == [14] * 8


def test_a_video_shorter_than_a_clip_is_one_clip() -> None:
    clips, columns = clips_in([range(1)], [0], 0.4, Window(2.0, 4.0, 8))
    assert (columns.start.tolist(), columns.end.tolist(), len(clips)) == ([0.0], [0.4], 1)


@pytest.mark.parametrize("options", [{"clip_seconds": 2.0}, {"clip_frames": 4}])
def test_how_clips_are_watched_is_not_ignored_without_a_model(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="give --vision MODEL as well"):
        STREAM.setup(Setup("a corpus", None, options, Registry(), []))


def test_a_switch_in_place_of_a_model_is_refused() -> None:
    with pytest.raises(UsageError, match="--vision has no default: name a model"):
        STREAM.setup(Setup("a corpus", None, {"vision": True}, Registry(), []))
