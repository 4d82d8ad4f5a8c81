"""Word pieces: one for each row of token features, whoever made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.encoders import WordPieces, encode_tokens, open_text_encoder
from whenabouts.types import UsageError

TEXTS = ["A person unwrapping a sandwich.", "", "word " * 400, "Zürich, 12:30"]


def test_each_row_of_features_has_its_word_piece(minilm_folder: Path) -> None:
    encoder = open_text_encoder()
    assert isinstance(encoder, WordPieces)
    pieces = encoder.word_pieces(TEXTS)
    assert [len(one) for one in pieces] == [len(rows) for rows in encode_tokens(encoder, TEXTS)]
    assert pieces[0] == [
        "[CLS]",
        "a",
        "person",
        "un",
        "##wr",
        "##app",
        "##ing",
        "a",
        "sandwich",
        ".",
        "[SEP]",
    ]


@pytest.mark.slow
def test_both_families_tell_the_same_pieces(minilm_folder: Path) -> None:
    pytest.importorskip("sentence_transformers")
    slow = open_text_encoder(f"sentence-transformers:{minilm_folder}")
    assert isinstance(slow, WordPieces)
    assert slow.word_pieces(TEXTS) == open_text_encoder().word_pieces(TEXTS)  # type: ignore[attr-defined]
    assert [len(one) for one in slow.word_pieces(TEXTS)] == [len(rows) for rows in encode_tokens(slow, TEXTS)]


def test_one_bare_string_is_refused(minilm_folder: Path) -> None:
    encoder = open_text_encoder()
    assert isinstance(encoder, WordPieces)
    with pytest.raises(UsageError, match="one string"):
        encoder.word_pieces("a person")
