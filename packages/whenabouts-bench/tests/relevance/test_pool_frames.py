"""EMScore over real feature files and a real corpus, with a small CLIP."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.small_clip import write_clip

from whenabouts import Corpus
from whenabouts.encoders import EncoderUnavailable, open_image_encoder
from whenabouts.encoders.protocol import unit_length
from whenabouts.index.records import EncoderMismatch
from whenabouts.types import Query, UsageError
from whenabouts.video.frames import sample_frames
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.relevance.pool_frames import (
    corpus_scorer,
    feature_scorer,
    files_of_videos,
    video_scorer,
)
from whenabouts_bench.relevance.word_vectors import ClipWords, query_words
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import write_store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unmeasured")]
SEEN = ("flower.webm", "frog.webm", "car-detection.mp4")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clip"))


def seen(names: tuple[str, ...]) -> Annotations:
    collector = AnnotationBuilder("seen")
    for number, name in enumerate(names):
        collector.add_video(name, 10.0)
        collector.add_query(f"{name}#0", f"a sentence of {'many more ' * number}words")
        collector.judge(f"{name}#0", name, 0.0, 2.0)
    return collector.annotations()


def test_the_end_token_is_what_the_model_makes_of_the_sentence(clip: Path) -> None:
    texts = ["a red flower opens", "two", "a person pours batter into a pan"]
    model = ClipWords(str(clip))
    words, sentence_of = query_words([Query(str(n), text) for n, text in enumerate([*texts, "two"])], model)
    assert sentence_of.tolist() == [0, 1, 2, 1] and words.times.tolist() == [1, 2, 1]
    encoder = open_image_encoder(str(clip))
    assert words.whole == pytest.approx(encoder.encode_text(texts), abs=1e-5)
    assert words.made_by == encoder.fingerprint and words.width == 16
    assert np.linalg.norm(words.vectors, axis=1) == pytest.approx(np.ones(len(words.vectors)), abs=1e-5)
    # Tokens are letters, with start and end tokens.
    assert np.diff(words.starts).tolist() == [min(len(text.replace(" ", "")) + 2, 40) for text in texts]


def test_batch_mates_do_not_move_words(clip: Path) -> None:
    model = ClipWords(str(clip))
    together = [rows for _, rows in model.encode(["two", "a person pours batter"])]
    ((_, alone),) = model.encode(["two"])
    assert together[0] == pytest.approx(alone, abs=1e-5)


def test_frames_of_a_feature_file_are_scored(clip: Path, tmp_path: Path) -> None:
    fingerprint = ClipWords(str(clip)).fingerprint
    draw = np.random.default_rng(0)
    items = [(name, draw.normal(size=(20, 16)).astype(np.float16)) for name in SEEN]
    write_store(tmp_path / "frames", items, Fingerprint(extra={"fingerprint": fingerprint}))
    scorer, made_by = feature_scorer(seen(SEEN), tmp_path / "frames", str(clip), 8)
    assert made_by == fingerprint and np.diff(scorer.frames.starts).tolist() == [8, 8, 8]
    found = scorer.score(np.array([0, 1, 2]), np.array([2, 0, 1])).full_f
    assert np.isfinite(found).all() and len(set(found.tolist())) == 3


def test_features_of_another_clip_are_refused_by_fingerprint_weights_or_width(
    clip: Path, tmp_path: Path
) -> None:
    other = write_clip(tmp_path / "other", seed=2)
    wide = write_clip(tmp_path / "wide", width=24)
    items = [(name, np.ones((3, 16), np.float32)) for name in SEEN]
    told = Fingerprint(extra={"fingerprint": ClipWords(str(other)).fingerprint})
    write_store(tmp_path / "told", items, told)
    with pytest.raises(UsageError, match=r"frames were made by 'clip model=.*needs one model for both"):
        feature_scorer(seen(SEEN), tmp_path / "told", str(clip), 8)
    write_store(tmp_path / "hashed", items, Fingerprint(encoder="ViT", weights_sha256="ab" * 32))
    with pytest.raises(UsageError, match=r"hashed: was made by ViT with weights ababababababab.*--clip"):
        feature_scorer(seen(SEEN), tmp_path / "hashed", str(clip), 8)
    write_store(tmp_path / "silent", items, Fingerprint())
    _, made_by = feature_scorer(seen(SEEN), tmp_path / "silent", str(clip), 8)
    assert made_by == "unknown, 16 wide"
    with pytest.raises(UsageError, match=r"silent: frames are 16 wide, and .*wide is a CLIP of 24"):
        feature_scorer(seen(SEEN), tmp_path / "silent", str(wide), 8)


def test_frames_that_are_no_numbers_are_named(clip: Path, tmp_path: Path) -> None:
    rows = np.ones((3, 16), np.float32)
    rows[1, 4] = np.nan
    write_store(tmp_path / "odd", [(name, rows) for name in SEEN], Fingerprint())
    with pytest.raises(UsageError, match=r"odd: flower\.webm: row 1 is not finite; make the features again"):
        feature_scorer(seen(SEEN), tmp_path / "odd", str(clip), 8)


def test_a_video_without_features_is_named(clip: Path, tmp_path: Path) -> None:
    write_store(tmp_path / "few", [(SEEN[0], np.ones((3, 16), np.float32))], Fingerprint())
    with pytest.raises(UsageError, match=r"few: has no frames of 2 of 3 videos of seen, such as 'frog.webm'"):
        feature_scorer(seen(SEEN), tmp_path / "few", str(clip), 8)


def test_a_model_without_words_in_the_space_of_pictures_is_refused(clip: Path, tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = tmp_path / "siglip"
    shutil.copytree(clip, folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = shape | {"vocab_size": 1000, "max_position_embeddings": 16, "projection_size": 32}
    config = transformers.SiglipConfig(
        text_config=text, vision_config=shape | {"image_size": 32, "patch_size": 8}
    )
    (folder / "config.json").unlink()
    transformers.SiglipModel(config).save_pretrained(folder)
    with pytest.raises(EncoderUnavailable, match=r"a siglip model has no vectors of single words.*a CLIP"):
        ClipWords(str(folder))


class Colours:
    """Planted vectors: an image maps to the recording of the nearest mean colour, a word to its thing."""

    name, fingerprint, dimension, image_size = "colours", "colours:1", 4, 32
    THINGS = ("flower", "frog", "car")

    def __init__(self, recordings: Sequence[Path]) -> None:
        self._means = []
        for path in recordings:
            with sample_frames(path, 1.0, size=32) as reader:
                self._means.append(np.mean([frame.image.mean((0, 1)) for frame in reader], axis=0))

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        apart = [[np.abs(image.mean((0, 1)) - mean).sum() for mean in self._means] for image in images]
        return np.asarray(np.eye(4)[np.argmin(apart, axis=1)], np.float32)

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [[float(thing in text) for thing in self.THINGS] + [0.1] for text in texts]
        return unit_length(np.array(rows))


def test_any_model_of_pictures_and_sentences_sees_what_is_in_real_frames(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Colours([samples / name for name in SEEN])
    for module in ("pool_frames", "word_vectors"):
        monkeypatch.setattr(f"whenabouts_bench.relevance.{module}.open_image_encoder", lambda name: planted)
    monkeypatch.setattr(
        "whenabouts_bench.relevance.word_vectors.ClipWords",
        lambda name: (_ for _ in ()).throw(EncoderUnavailable("no CLIP")),
    )
    collector = AnnotationBuilder("seen")
    for number, thing in enumerate(Colours.THINGS):
        collector.add_video(SEEN[number], 10.0)
        collector.add_query(thing, f"here is a {thing}")
        collector.judge(thing, SEEN[number], 0.0, 2.0)
    scorer, made_by = video_scorer(collector.annotations(), samples, "planted", 8)
    assert made_by == "colours:1, words: single words"
    counts = np.diff(scorer.frames.starts)
    assert (counts >= 1).all() and (counts <= 8).all()
    found = scorer.score(np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)).full_f.reshape(3, 3)
    assert (found.argmax(1) == np.arange(3)).all()
    assert found.diagonal().min() > 0.5 > found[~np.eye(3, dtype=bool)].max()


def test_a_frame_a_second_of_a_recording_is_encoded_and_long_ones_are_spread(
    clip: Path, samples: Path
) -> None:
    every, made_by = video_scorer(seen(SEEN), samples, str(clip), 1000)
    encoder = open_image_encoder(str(clip))
    assert made_by == encoder.fingerprint
    for number, name in enumerate(SEEN):
        with sample_frames(samples / name, 1.0, size=encoder.image_size) as reader:
            expected = encoder.encode_images([frame.image for frame in reader])
        rows = slice(*every.frames.starts[number : number + 2])
        assert every.frames.vectors[rows] == pytest.approx(expected, abs=1e-3)
    few, _ = video_scorer(seen(SEEN), samples, str(clip), 3)
    assert np.diff(few.frames.starts).tolist() == [min(3, n) for n in np.diff(every.frames.starts).tolist()]


def test_recordings_are_found_by_name_with_or_without_ending_and_doubtful_ones_refused(
    samples: Path, tmp_path: Path
) -> None:
    shutil.copy(samples / "flower.webm", tmp_path / "flower.webm")
    assert files_of_videos(["flower", "frog"], tmp_path) == {"flower": tmp_path / "flower.webm"}
    with pytest.raises(UsageError, match=r"has no frames of 1 of 2 videos of seen, such as 'frog'"):
        video_scorer(seen(("flower", "frog")), tmp_path, "any", 4)
    with pytest.raises(UsageError, match="nowhere: is not a folder"):
        files_of_videos(SEEN, tmp_path / "nowhere")
    (tmp_path / "again").mkdir()
    shutil.copy(samples / "flower.webm", tmp_path / "again" / "flower.webm")
    with pytest.raises(UsageError, match=r"'flower' may be '.*' or '.*'; keep one"):
        files_of_videos(["flower"], tmp_path)


@pytest.fixture(scope="module")
def corpus(unmeasured: None, tmp_path_factory: pytest.TempPathFactory, samples: Path, clip: Path) -> str:
    folder = tmp_path_factory.mktemp("seen")
    (folder / "videos").mkdir()
    for name in SEEN:
        shutil.copy(samples / name, folder / "videos" / name)
    made = Corpus(folder / "seen.corpus", create=True)
    assert not made.add(folder / "videos", vision=str(clip), processes=1).failed
    return made.location


@pytest.mark.parametrize("names", [SEEN, ("flower", "frog", "car-detection")])
def test_frames_of_a_corpus_are_those_that_a_search_finds(
    corpus: str, clip: Path, names: tuple[str, ...]
) -> None:
    scorer, made_by = corpus_scorer(seen(names), corpus, 1000)
    assert made_by == open_image_encoder(str(clip)).fingerprint
    store = Corpus(corpus).store
    ids = {Path(record.path).name: record.video_id for record in store.videos()}
    block = store.clips_of("vision", [ids[name] for name in SEEN])
    assert scorer.frames.starts.tolist() == block.offsets.tolist()
    assert scorer.frames.vectors == pytest.approx(block.vectors, abs=1e-3)


def test_a_corpus_without_the_video_or_with_two_of_the_name_is_refused(
    corpus: str, clip: Path, samples: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"has no frames of 1 of 1 videos of seen, such as 'whale'"):
        corpus_scorer(seen(("whale",)), corpus, 8)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(samples / "flower.webm", tmp_path / folder / "flower.webm")
    with (tmp_path / "b" / "flower.webm").open("ab") as stream:
        stream.write(b"\0")
    made = Corpus(tmp_path / "twins.corpus", create=True)
    made.add(tmp_path / "a", tmp_path / "b", vision=str(clip), processes=1)
    with pytest.raises(UsageError, match=r"'flower' fits 2 videos of .*; use their ids"):
        corpus_scorer(seen(("flower",)), made.location, 8)


def test_a_corpus_without_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "talk.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nBeetles live in jars.\n")
    made = Corpus(tmp_path / "words.corpus", create=True)
    made.add(tmp_path / "talk.vtt", processes=1)
    with pytest.raises(UsageError, match=r"has no pictures, only words; index it with --vision"):
        corpus_scorer(seen(("talk",)), made.location, 8)


def test_a_corpus_whose_model_was_replaced_is_refused(
    corpus: str, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_clip(tmp_path / "other", seed=5)
    store = Corpus(corpus).store
    info = replace(store.streams["vision"], encoder=str(other))
    monkeypatch.setattr("whenabouts.index.store.Store.streams", {"vision": info})
    with pytest.raises(EncoderMismatch):
        corpus_scorer(seen(SEEN), corpus, 8)
