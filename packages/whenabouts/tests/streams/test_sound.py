"""Sounds are found where they are, by an encoder with known meaning, on films whose sound is known."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.encoders.protocol import EncoderOutOfMemory
from whenabouts.index.reading import ReadVideo, SoundBatch
from whenabouts.index.records import EncoderMismatch, StreamInfo, VideoRecord
from whenabouts.index.sampling import SoundSettings
from whenabouts.index.stream import Setup
from whenabouts.indexing import plan_index, run_index
from whenabouts.streams import stream
from whenabouts.types import UsageError

BANDS = {"a deep hum": (60.0, 400.0), "a whistle": (400.0, 3_000.0), "hissing": (3_000.0, 8_000.0)}


class Bands:
    """An encoder with known meaning: which share of a sound lies in which band, and which band words name."""

    name, fingerprint, dimension = "bands", "bands:1", 4
    sampling_rate, longest_seconds = 16_000, 10.0

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        return self._unit([self._shares(samples) for samples in sounds])

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._unit([[text == name for name in BANDS] + [text not in BANDS] for text in texts])

    def _shares(self, samples: NDArray[np.float32]) -> list[float]:
        power = np.square(np.abs(np.fft.rfft(samples)))
        at = np.fft.rfftfreq(len(samples), 1 / self.sampling_rate)
        shares = [power[(at >= low) & (at < high)].sum() for low, high in BANDS.values()]
        return [*shares, 0.01 * power.sum()]

    def _unit(self, rows: Any) -> NDArray[np.float32]:
        raw = np.array(rows, np.float32).reshape(-1, self.dimension)
        return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), np.float32)


class Deaf(Bands):
    """It has no memory for a loud sound."""

    def encode_sounds(self, sounds: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        if any(np.abs(samples).max() > 0.6 for samples in sounds):
            raise EncoderOutOfMemory("out of memory; take a smaller model than bands")
        return super().encode_sounds(sounds)


def tone(hertz: float, loudness: float = 0.25) -> str:
    return f"{loudness}*sin(2*PI*{hertz}*t)"


def film(path: Path, parts: Sequence[tuple[str, float]], *more: str, picture: bool = True) -> Path:
    """A film of grey pictures; its sound is each expression of time for so many seconds."""
    sources = [f"aevalsrc='{sound}':s=48000:d={seconds}" for sound, seconds in parts]
    joined = "".join(f"[{place}]" for place in range(len(parts))) + f"concat=n={len(parts)}:v=0:a=1[a]"
    seconds = sum(seconds for _, seconds in parts)
    graph = ";".join([*(f"{source}[{place}]" for place, source in enumerate(sources)), joined])
    shown = ["-f", "lavfi", "-i", f"color=gray:s=64x64:r=5:d={seconds}", "-map", "0:v"] if picture else []
    command = [*shown, "-filter_complex", graph, "-map", "[a]", *more, str(path)]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *command], check=True)
    return path


SILENCE = "0"
HISS = "0.2*(random(0)-0.5)*sin(2*PI*5000*t)*2"
PARTS = [(SILENCE, 10.0), (tone(150), 6.0), (SILENCE, 9.0), (HISS, 5.0), (SILENCE, 7.0), (tone(900), 4.0)]
TIMES = {"a deep hum": (10.0, 16.0), "hissing": (25.0, 30.0), "a whistle": (37.0, 41.0)}


def indexed(place: Path, *films: Path, encoder: Any = None, **options: Any) -> Corpus:
    corpus = Corpus(place, create=True, encoders=[encoder or Bands()])
    with uncalibrated():
        plan = plan_index(corpus, films, sound=encoder or Bands(), **options)
        run_index(corpus, plan, processes=1)
    return corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The film of TIMES, one with other sounds, and one that is silent."""
    folder = tmp_path_factory.mktemp("sounds")
    films = [
        film(folder / "three.mp4", PARTS),
        film(folder / "other.mp4", [(tone(900), 12.0), (SILENCE, 8.0), (tone(150, 0.02), 3.0)]),
        film(folder / "silent.mp4", [(SILENCE, 12.0)]),
    ]
    return indexed(folder / "corpus", *films)


def named(corpus: Corpus, video_id: str) -> str:
    return Path(corpus.resolve(video_id).path).name


@pytest.mark.parametrize("text", TIMES)
def test_a_sound_is_found_where_it_is(corpus: Corpus, text: str) -> None:
    within = corpus.search(text, k=1, within="three.mp4", streams="sound")
    found, (start, end) = within.moments[0].moment, TIMES[text]
    assert abs(found.start - start) <= 2.0 and abs(found.end - end) <= 2.0
    assert set(within.moments[0].evidence) == {"sound"}
    first = corpus.search(text, k=1, streams="sound").moments[0].moment
    assert named(corpus, first.video_id) == ("other.mp4" if text == "a whistle" else "three.mp4")


def test_silence_has_no_clips_and_is_never_an_answer(corpus: Corpus) -> None:
    clips = corpus.store.clips_of("sound", [corpus.resolve("three.mp4").video_id])
    heard = [(start - 2.0, end + 2.0) for start, end in TIMES.values()]
    for start, end in zip(clips.start, clips.end, strict=True):
        assert any(begin <= start and end <= last for begin, last in heard)
    silent = corpus.resolve("silent.mp4")
    assert "sound" in silent.streams and len(corpus.store.clips_of("sound", [silent.video_id])) == 0
    for text in (*TIMES, "nothing at all"):
        found = corpus.search(text, k=50).moments
        assert all(each.moment.video_id != silent.video_id for each in found)


def test_no_moment_reaches_over_silence(corpus: Corpus) -> None:
    moments = corpus.search("a deep hum", k=50, within="three.mp4", streams="sound").moments
    assert all(each.moment.end - each.moment.start <= 8.0 for each in moments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("stereo.mp4", ["-ac", "2"]),
        ("surround.mkv", ["-ac", "6", "-c:a", "ac3"]),
        ("telephone.mkv", ["-ar", "8000", "-c:a", "pcm_alaw"]),
        ("shifted.mkv", ["-output_ts_offset", "3"]),
    ],
)
def test_channels_and_rates_make_no_difference(tmp_path: Path, name: str, more: list[str]) -> None:
    corpus = indexed(tmp_path / "corpus", film(tmp_path / name, PARTS, *more))
    found = corpus.search("a deep hum", k=1, streams="sound").moments[0].moment
    assert abs(found.start - 10.0) <= 2.0 and abs(found.end - 16.0) <= 2.0


@pytest.mark.slow
def test_a_sound_file_without_pictures_is_searched_and_a_film_without_sound_has_none(tmp_path: Path) -> None:
    only = film(tmp_path / "only.flac", PARTS, picture=False)
    mute = tmp_path / "mute.mp4"
    source = ["-f", "lavfi", "-i", "color=gray:s=64x64:r=5:d=4"]
    subprocess.run(["ffmpeg", "-v", "error", *source, str(mute)], check=True)
    corpus = indexed(tmp_path / "corpus", only, mute)
    first = corpus.search("hissing", k=1).moments[0].moment
    assert named(corpus, first.video_id) == "only.flac"
    assert len(corpus.store.clips_of("sound", [corpus.resolve("mute.mp4").video_id])) == 0
    assert not plan_index(corpus, [only, mute]).work  # both are done


@pytest.mark.slow
def test_a_file_that_needs_too_much_memory_fails_alone_with_the_remedy(tmp_path: Path) -> None:
    films = [film(tmp_path / "loud.mp4", [(tone(900, 0.9), 4.0)]), film(tmp_path / "soft.mp4", PARTS)]
    corpus = indexed(tmp_path / "corpus", *films, encoder=Deaf())
    states = {Path(record.path).name: (record.state, record.error) for record in corpus.store.videos()}
    failed = "out of memory; take a smaller model than bands"
    assert states == {"soft.mp4": ("done", ""), "loud.mp4": ("failed", failed)}


@pytest.mark.slow
def test_clips_of_another_length_are_refused_and_so_are_lengths_beyond_the_model(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mp4", PARTS[:2])
    corpus = indexed(tmp_path / "corpus", path, sound_seconds=4.0)
    assert dict(corpus.store.streams["sound"].settings) == {"clip_seconds": 4.0, "window_seconds": 8.0}
    with pytest.raises(EncoderMismatch, match="every 4 s, not every 2 s"):
        plan_index(corpus, [path], sound=Bands(), sound_seconds=2.0)
    with pytest.raises(UsageError, match="takes at most 10 s of sound"):
        indexed(tmp_path / "other", path, sound_seconds=12.0)
    with pytest.raises(UsageError, match="give --sound MODEL as well"):
        plan_index(Corpus(tmp_path / "third", create=True), [path], sound_seconds=2.0)


class Adopts:
    def adopt(self, encoder: Any, info: StreamInfo | None) -> Any:
        return encoder


def test_pieces_of_any_length_give_the_clips_of_the_whole() -> None:
    sound = stream("sound")
    run = sound.setup(Setup("a corpus", None, {"sound": Bands()}, Adopts(), []))  # type: ignore[arg-type]
    assert run is not None
    rng, settings = np.random.default_rng(4), SoundSettings(16_000)
    samples = (rng.normal(size=61 * 16_000 + 777) / 10).astype(np.float32)
    samples[20 * 16_000 : 31 * 16_000] = 0
    video = ReadVideo(VideoRecord("a", "a.wav", duration=61.0), 61.0)

    def clips(cuts: Sequence[int]) -> Any:
        kept: list[Any] = []
        for first, last in zip([0, *cuts], [*cuts, len(samples)], strict=True):
            batch = SoundBatch(settings, first / 16_000, samples[first:last])
            encoded = sound.encode(batch, run, kept)
            kept[-1:] = [sound.settled(each) for each in kept[-1:]]
            assert all(each.samples.base is None for each in kept[-1:])  # no view keeps the samples
            kept.append(encoded)
        return sound.clips(video, kept, run)

    whole = clips([])
    assert whole.start.tolist() == [*range(0, 20, 2), *range(30, 62, 2)]
    for cuts in ([480_000], sorted(rng.choice(len(samples), 12, replace=False).tolist()), [5, 6, 7]):
        parts = clips(cuts)
        assert parts.start.tolist() == whole.start.tolist() and parts.end.tolist() == whole.end.tolist()
        np.testing.assert_allclose(parts.vectors, whole.vectors, atol=1e-6)
