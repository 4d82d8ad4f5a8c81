"""Names by a real token classifier: a small BERT whose last layer makes one word a name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts_bench.relevance.imprecise.protocol import RewriterUnavailable
from whenabouts_bench.relevance.imprecise.token_model import TokenModelNames

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ross", "geller", "sits", "and", "."]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    def make(labels: tuple[str, ...] = ("O", "B-PER"), kind: str = "BertForTokenClassification") -> Path:
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
        transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, max_position_embeddings=32, id2label=dict(enumerate(labels)),
        )  # fmt: skip
        model = getattr(transformers, kind)(config)
        if kind == "BertForTokenClassification":
            planted(model)
        model.save_pretrained(tmp_path)
        return tmp_path

    return make


def planted(model: Any) -> None:
    """Set the last layer so that exactly the two words of a name, where they stand alone, are persons."""
    model.eval()
    with torch.inference_mode():
        ids = torch.tensor([[2, *row, 3] for row in ([4, 5, 6, 8], [6, 7, 6, 8], [6, 7, 4, 8])])
        hidden = model.bert(ids).last_hidden_state.reshape(-1, 16)
    target = torch.where((ids == 4) | (ids == 5), 8.0, -8.0).reshape(-1)
    design = torch.cat([hidden, torch.ones(len(hidden), 1)], 1).clone()
    weights = torch.linalg.lstsq(design, target[:, None]).solution[:, 0]
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.zero_()
        model.classifier.weight[1] = weights[:16]
        model.classifier.bias[1] = weights[16]


def test_words_whose_class_is_a_person_are_names_and_neighbours_are_one(folder: Callable[..., Path]) -> None:
    finder = TokenModelNames(str(folder()))
    assert finder.names(["Ross Geller sits.", "sits and sits.", "sits and Ross."]) == [
        ("Ross Geller",),
        (),
        ("Ross",),
    ]
    assert finder.names([]) == []


def test_a_model_without_a_class_of_persons_is_refused(folder: Callable[..., Path]) -> None:
    with pytest.raises(RewriterUnavailable, match="no class of persons among O, LOC"):
        TokenModelNames(str(folder(("O", "LOC"))))


def test_a_model_without_classes_of_tokens_is_refused(folder: Callable[..., Path]) -> None:
    with pytest.raises(RewriterUnavailable, match="no weights for classes of tokens"):
        TokenModelNames(str(folder(kind="BertModel")))


def test_a_model_that_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(RewriterUnavailable, match=r"models get|is no model"):
        TokenModelNames("nobody/has-this-model")
    with pytest.raises(RewriterUnavailable):
        TokenModelNames(str(tmp_path / "missing"))
