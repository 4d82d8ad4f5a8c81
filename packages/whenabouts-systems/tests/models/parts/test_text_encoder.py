"""A text encoder inside a system: ids by its tokenizer, its pretrained weights, and what does not fit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.models import config_of
from whenabouts_systems.models.mmn import TextEncoder
from whenabouts_systems.models.parts.text_encoder import Tokens, Words, mean_of_words, read_pretrained
from whenabouts_systems.models.protocol import QueryBatch

transformers: Any = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "door", "open", "##s", "person"]
SIZES = {
    "vocab_size": len(WORDS),
    "dim": 8,
    "n_heads": 2,
    "n_layers": 2,
    "hidden_dim": 12,
    "max_position_embeddings": 16,
}


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    """A small random DistilBERT of the library, with its words."""
    torch.manual_seed(0)
    model = transformers.DistilBertModel(transformers.DistilBertConfig(**SIZES))
    model.save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path / "bert"


def test_sentences_become_ids_with_beginning_and_end(folder: Path) -> None:
    batch = Tokens(str(folder)).batch(["A person opens a door", "Door"], 20)
    assert batch.tokens.tolist() == [[2, 4, 8, 6, 7, 4, 5, 3], [2, 5, 3, 0, 0, 0, 0, 0]]
    assert batch.mask.sum(1).tolist() == [8, 3]


def test_a_long_sentence_keeps_its_beginning_and_its_end_mark(folder: Path) -> None:
    tokens = Tokens(str(folder))
    assert tokens.batch(["a person opens a door"], 4).tokens.tolist() == [[2, 4, 8, 3]]
    assert tokens.lengths(["a person opens a door", "door"]) == [8, 3]
    assert tokens.batch(["a person opens a door"], 20).tokens.shape == (1, 8)
    assert tokens.batch(["a person opens a door"], 1).tokens.shape == (1, 1)


def test_a_tokenizer_of_the_newer_kind_is_read_too(folder: Path) -> None:
    before = Tokens(str(folder)).batch(["a person opens"], 20).tokens
    transformers.DistilBertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(str(folder))
    assert (folder / "tokenizer.json").is_file()
    assert torch.equal(Tokens(str(folder)).batch(["a person opens"], 20).tokens, before)


def test_threads_do_not_cut_off_each_others_sentences(folder: Path) -> None:
    tokens = Tokens(str(folder))
    long = ["a man opens a door"] * 50

    def shapes(at: int) -> set[int]:
        return {tokens.batch(long, 4).tokens.shape[1]} if at % 2 else set(tokens.lengths(long))

    alone = [shapes(at) for at in range(2)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shapes, range(400))) == alone * 200


def test_no_sentences_are_no_rows(folder: Path) -> None:
    assert len(Tokens(str(folder)).batch([], 20)) == 0


def test_a_sentence_without_words_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="sentence 1 is '  '; give words"):
        Tokens(str(folder)).batch(["door", "  "], 20)


def test_half_a_surrogate_pair_is_an_unknown_word(folder: Path) -> None:
    tokens = Tokens(str(folder))
    assert tokens.batch(["door \ud83d"], 20).tokens.tolist() == [[2, 5, 1, 3]]
    assert tokens.pieces("door \ud83d", special=False) == ["door", "[UNK]"]
    assert tokens.words(["\ud83d door"], 20) == [[1, 5]]


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no tokenizer\.json, no vocab\.txt, and no vocab\.json"):
        Tokens(str(tmp_path))


def test_pieces_of_bytes_are_told_by_their_characters(tmp_path: Path) -> None:
    """RoBERTa's tokenizer calls a space and what is beyond ASCII by signs of its own."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(["how are doors"] * 9, vocab_size=280, min_frequency=1, special_tokens=["<s>"])
    made.save_model(str(tmp_path))
    names = Tokens(str(tmp_path)).pieces("how are  caf\u00e9 doors", special=False)
    assert names[:1] + names[-1:] == ["how", "doors"] and "are" in names
    words = " ".join(names).replace(" ##", "").split()
    assert words == ["how", "are", "caf\u00e9", "doors"]


@pytest.mark.parametrize("text", ["\u201chow\u201d are", "how \u6f22\ufb01 are", "\U0001f600! are"])
def test_a_word_that_begins_beyond_ascii_stays_whole(text: str, tmp_path: Path) -> None:
    """Each byte of its first character may be a token."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(["how are doors"] * 9, vocab_size=280, min_frequency=1, special_tokens=["<s>"])
    made.save_model(str(tmp_path))
    pieces = Tokens(str(tmp_path)).pieces(text, special=False)
    assert " ".join(pieces).replace(" ##", "").split() == text.split()


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer.json": '{"version":'},
        {"vocab.json": "{}", "merges.txt": "x"},
        {"vocab.json": '{"a": 0', "merges.txt": "#version: 0.2"},
        {"vocab.txt": "\udcff"},
        {"vocab.txt": "door\n"},
    ],
    ids=["json", "merges", "vocabulary", "encoding", "no special tokens"],
)
def test_a_damaged_tokenizer_is_named(files: dict[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=rf"{next(iter(files))}: damaged, .*fetch the tokenizer again"):
        Tokens(str(tmp_path))


def test_words_that_a_tokenizer_cannot_tell_are_refused(tmp_path: Path) -> None:
    tokenizers: Any = pytest.importorskip("tokenizers")
    for model, problem in (
        (tokenizers.models.WordLevel({"door": 0}), "cannot encode a word"),
        (None, "'zebra'"),
    ):
        made = tokenizers.Tokenizer(model or tokenizers.models.BPE({"d": 0}, []))
        made.save(str(tmp_path / "tokenizer.json"))
        for read in (Tokens(str(tmp_path)).word_batch, Tokens(str(tmp_path)).batch):
            with pytest.raises(UsageError, match=problem):
                read(["zebra"], 5)


def test_pretrained_weights_are_those_of_the_library(folder: Path) -> None:
    encoder = TextEncoder(5, 6, SIZES)
    assert encoder.bert is not None
    read_pretrained(encoder.bert, str(folder))
    encoder.eval()
    batch = Tokens(str(folder)).batch(["a person opens a door", "door"], 20)
    library = transformers.DistilBertModel.from_pretrained(str(folder)).eval()
    with torch.no_grad():
        expected = library(batch.tokens, attention_mask=batch.mask.long()).last_hidden_state
        assert torch.allclose(Words.forward(encoder, batch)[batch.mask], expected[batch.mask], atol=1e-6)


def test_padding_and_what_stands_in_it_move_no_sentence(folder: Path) -> None:
    encoder = TextEncoder(5, 6, SIZES).eval()
    batch = Tokens(str(folder)).batch(["a person opens a door", "door"], 20)
    alone = Tokens(str(folder)).batch(["door"], 20)
    littered = QueryBatch(torch.where(batch.mask, batch.tokens, 99), batch.mask)
    with torch.no_grad():
        together, single, other = encoder(batch), encoder(alone), encoder(littered)
    for one, two, three in zip(together, single, other, strict=True):
        assert torch.allclose(one[1], two[0], atol=1e-6)
        assert torch.allclose(one, three, atol=1e-6)
        assert torch.allclose(one.norm(dim=1), torch.ones(2), atol=1e-5)


def test_other_sizes_than_the_settings_say_are_named(folder: Path) -> None:
    encoder = TextEncoder(5, 6, {**SIZES, "hidden_dim": 20})
    with pytest.raises(UsageError, match=r"has hidden_dim = 12, but \[model\.text\] says 20"):
        read_pretrained(encoder.bert, str(folder))


def test_another_network_than_a_distilbert_is_refused(tmp_path: Path) -> None:
    """The library would give the layers of a BERT, which have other names, random weights."""
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2}
    transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(tmp_path)
    encoder = TextEncoder(5, 6, {**SIZES, "hidden_dim": 3072, "max_position_embeddings": 512})
    with pytest.raises(
        WhenaboutsError, match=r"lacks 32 weights, such as transformer\.layer\.0.*a DistilBERT"
    ):
        read_pretrained(encoder.bert, str(tmp_path))


def test_a_truncated_file_of_weights_is_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(WhenaboutsError, match="bert' cannot be read: "):
        read_pretrained(TextEncoder(5, 6, SIZES).bert, str(folder))


def test_heads_that_do_not_divide_the_width_are_named() -> None:
    with pytest.raises(UsageError, match="bet: text: dim = 768 is no multiple of n_heads = 7"):
        config_of("bet", {"text_encoder": "a folder", "text": {"n_heads": 7}})


def test_a_text_encoder_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WhenaboutsError, match="cannot be read"):
        read_pretrained(TextEncoder(5, 6, SIZES).bert, str(tmp_path / "empty"))


def test_ids_without_a_text_encoder_and_features_with_one_are_refused() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(UsageError, match="words are ids, but this system has no text encoder"):
        TextEncoder(5, 6)(QueryBatch(torch.zeros(1, 3, dtype=torch.int64), mask))
    with pytest.raises(UsageError, match="words are features, but this system has a text encoder"):
        TextEncoder(5, 6, SIZES)(QueryBatch(torch.zeros(1, 3, 5), mask))


def test_without_the_library_a_text_encoder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match="needs the package transformers"):
        TextEncoder(5, 6, SIZES)
    assert TextEncoder(5, 6).bert is None


def test_the_mean_is_over_real_words() -> None:
    hidden = torch.tensor([[[1.0], [3.0], [100.0]]])
    assert mean_of_words(hidden, torch.tensor([[True, True, False]])).tolist() == [[2.0]]
