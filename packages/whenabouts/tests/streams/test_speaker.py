"""Who speaks by voice: real speech, a planted model that tells loud from quiet, through the whole product."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("faster_whisper")
pytest.importorskip("onnx")

from tests.planted_people import diarizer_folder, voice_model, x_vector_folder
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.encoders.protocol import EncoderUnavailable
from whenabouts.streams._clusters import clusters
from whenabouts.video.sound import sound_pieces


def spoken(samples: Path, path: Path, *volumes: float) -> Path:
    """The speech of a film once for each volume, one after the other."""
    return filtered(samples, path, *(f"volume={volume}" for volume in volumes))


def filtered(samples: Path, path: Path, *filters: str) -> Path:
    """The speech of a film once through each filter of ffmpeg, one after the other."""
    source = str(samples / "nasa_13013.mp4")
    parts = "".join(f"[0:4]{each}[a{row}];" for row, each in enumerate(filters))
    joined = "".join(f"[a{row}]" for row in range(len(filters)))
    graph = f"{parts}{joined}concat=n={len(filters)}:v=0:a=1[out]"
    command = ["ffmpeg", "-v", "error", "-i", source, "-filter_complex", graph, "-map", "[out]", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module")
def talks(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talks")
    spoken(samples, folder / "two.wav", 3.0, 0.3)
    spoken(samples, folder / "quiet.wav", 0.3)
    return folder


@pytest.fixture
def corpus(tmp_path: Path, talks: Path) -> Corpus:
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        summary = corpus.add(talks, speakers=str(voice_model(tmp_path / "voices.onnx")), processes=1)
    assert not summary.failed
    return corpus


@pytest.mark.slow
def test_voices_are_told_apart_and_joined_over_recordings(corpus: Corpus) -> None:
    turns = corpus.people.turns("speaker", corpus.resolve("two.wav").video_id)
    loud = [name for start, _, name in turns if start < 12]
    quiet = [name for start, _, name in turns if start > 13]
    assert len(set(loud)) == len(set(quiet)) == 1 and set(loud) != set(quiet)
    people = {person.name: len(person.videos) for person in corpus.people.listed()}
    assert sorted(people.values()) == [1, 2] and people[loud[0]] == 1


@pytest.mark.slow
def test_a_model_of_transformers_tells_voices_apart_by_folder(samples: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    talks, bright, dark = tmp_path / "talks", "highpass=f=1000", "lowpass=f=700"
    talks.mkdir()
    filtered(samples, talks / "both.wav", bright, dark)
    filtered(samples, talks / "dark.wav", dark)
    heard = next(iter(sound_pieces(talks / "both.wav", 60.0))).samples
    pieces = [heard[at : at + 24_000] for at in range(0, len(heard) - 24_000, 3_000)]
    model = x_vector_folder(tmp_path / "model", apart=(pieces[:60], pieces[-60:]))
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        assert not corpus.add(talks, speakers=str(model), processes=1).failed
    turns = corpus.people.turns("speaker", corpus.resolve("both.wav").video_id)
    brights = {name for start, _, name in turns if start < 12}
    darks = {name for start, _, name in turns if start > 13}
    assert len(brights) == len(darks) == 1 and brights != darks
    people = {person.name: len(person.videos) for person in corpus.people.listed()}
    assert people == {brights.pop(): 1, darks.pop(): 2}
    assert Corpus(tmp_path / "corpus").add(talks, processes=1).unchanged == 2


@pytest.mark.slow
def test_a_diarizer_says_who_speaks_when(samples: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    talks, bright, dark = tmp_path / "talks", "highpass=f=1000", "lowpass=f=700"
    talks.mkdir()
    filtered(samples, talks / "both.wav", bright, dark)
    sound = next(iter(sound_pieces(talks / "both.wav", 60.0))).samples
    middle = len(sound) / 32_000
    model = diarizer_folder(tmp_path / "model", sound, [(0, middle, 0), (middle, 2 * middle, 1)])
    corpus = Corpus(tmp_path / "corpus", create=True)
    with uncalibrated():
        assert not corpus.add(talks, speakers=str(model), processes=1).failed
    turns = corpus.people.turns("speaker", corpus.resolve("both.wav").video_id)
    np.testing.assert_allclose([turn[:2] for turn in turns], [(0, middle), (middle, 2 * middle)], atol=0.5)
    assert turns[0][2] != turns[1][2]
    assert Corpus(tmp_path / "corpus").add(talks, processes=1).unchanged == 1


@pytest.mark.slow
def test_names_in_subtitles_name_the_voice_and_so_who_speaks_elsewhere(
    samples: Path, talks: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    spoken(samples, folder / "a.wav", 0.25)
    lines = [f"00:{at:02d}.000 --> 00:{at + 3:02d}.000\nAda: word {at}\n" for at in (0, 3, 6, 9)]
    (folder / "a.vtt").write_text("WEBVTT\n\n" + "\n".join(lines))
    corpus = Corpus(tmp_path / "corpus", create=True)
    model = str(voice_model(tmp_path / "voices.onnx"))
    with uncalibrated():
        corpus.add(folder, speakers=model, processes=1)
        corpus.add(talks, processes=1)
    people = {person.name: len(person.videos) for person in corpus.people.listed()}
    assert people["Ada"] == 3


@pytest.mark.slow
def test_a_recording_without_sound_and_a_transcript_have_what_they_can(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "only.vtt").write_text(
        "WEBVTT\n\n" + "\n".join(f"00:0{n}.000 --> 00:0{n + 1}.000\nBEN: word {n}\n" for n in range(4))
    )
    corpus = Corpus(tmp_path / "corpus", create=True)
    model = str(voice_model(tmp_path / "voices.onnx"))
    with uncalibrated():
        summary = corpus.add(samples / "basketball.mp4", tmp_path / "only.vtt", speakers=model, processes=1)
    assert not summary.failed and [person.name for person in corpus.people.listed()] == ["BEN"]


def test_a_model_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path, talks: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", create=True)
    with pytest.raises(EncoderUnavailable, match="there is no such file"):
        corpus.add(talks, speakers=str(tmp_path / "no.onnx"), processes=1)
    assert not corpus.videos()


def test_many_windows_are_clustered_by_a_sample_of_them() -> None:
    rng = np.random.default_rng(4)
    centres = np.eye(16, dtype=np.float32)[:5]
    truth = rng.integers(0, 5, 9000)
    noisy = centres[truth] + rng.normal(size=(9000, 16)) / 20
    vectors = (noisy / np.linalg.norm(noisy, axis=1, keepdims=True)).astype(np.float32)
    group = clusters(vectors, 0.5)
    assert len(set(zip(group.tolist(), truth.tolist(), strict=True))) == 5
    assert group[0] == 0 and len(clusters(vectors[:0], 0.5)) == 0
