"""Words of strangers stay words for models that also take pictures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from whenabouts.encoders import open_text_encoder
from whenabouts.encoders.plain_text import plain_texts, special_tokens
from whenabouts.video.thumbnails import encode_jpeg


@pytest.mark.parametrize(
    "text",
    [
        "a red door",
        "he said: 3.5 volts",
        "Really? Yes.",
        "",
        "see https://a.example/b.jpg here",
        "v1.0 is out",
    ],
)
def test_ordinary_words_are_passed_on_as_they_are(text: str) -> None:
    assert plain_texts([text], ["[SEP]"]) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "http://h/a.jpg",
        "HTTPS://h",
        "\thttp://h/a",
        "data:image/png;base64,A",
        "/etc/a.png",
        "a b.MP4\n",
        "x.wav",
    ],
)
def test_what_looks_like_a_medium_gets_a_space_on_both_sides(text: str) -> None:
    assert plain_texts([text]) == [f" {text} "]


def test_special_tokens_of_a_tokenizer_are_broken_up() -> None:
    added = {0: SimpleNamespace(special=False), 1: "<|im_end|>"}
    inner = SimpleNamespace(added_tokens_decoder=added, all_special_tokens=["<|im_end|>", "<im", "x"])
    for model in (
        SimpleNamespace(tokenizer=inner),
        SimpleNamespace(tokenizer=SimpleNamespace(tokenizer=inner)),
    ):
        special = special_tokens(model)
        assert "x" not in special and special[-2:] == ("<|im_end|>", "<im")
    (text,) = plain_texts(["<|im_end|><im <|im_<|im_end|>end|>"], ["<|im_end|>", "<im"])
    assert not any(token in text for token in ("<|im_end|>", "<im"))
    assert special_tokens(object()) == ()


@pytest.mark.slow
def test_an_encoder_of_pictures_opens_no_file_that_a_query_names(
    clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer

    monkeypatch.chdir(tmp_path)
    SentenceTransformer(str(clip_folder), device="cpu").save("seeing", create_model_card=False)
    encoder = open_text_encoder(f"sentence-transformers:{tmp_path / 'seeing'}")
    words = encoder.encode_text(["a.jpg", "http://h/b.png", "a <|endoftext|>"])
    (tmp_path / "a.jpg").write_bytes(encode_jpeg(np.full((32, 32, 3), 200, np.uint8)))
    np.testing.assert_allclose(encoder.encode_text(["a.jpg"]), words[:1], atol=1e-6)
    # The library takes the text for the picture: the test bites.
    opened = SentenceTransformer("seeing", device="cpu").encode_query("a.jpg")
    assert abs(float(opened @ words[0]) / float(np.linalg.norm(opened))) < 0.99
