"""Text encoders are fine-tuned by masked language modeling, on sentences of a training split."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from whenabouts.encoders import EncoderUnavailable, encode_tokens, open_text_encoder
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.cli import features as verb
from whenabouts_systems.features import open_features
from whenabouts_systems.training import masked_words
from whenabouts_systems.training.masked_words import NOT_PREDICTED, divided, fine_tune, mask_words

transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WHO, DOES = ["person", "dog", "cat", "child"], ["opens", "closes", "holds", "washes", "moves"]
WHAT, WHERE, HOW = ["door", "cup", "book", "lamp"], ["kitchen", "garden", "hall"], ["slowly", "again", "now"]
# Who does it and where follow from what is held: a model that reads the other words can guess each.
LANGUAGE = [
    f"the {WHO[what]} {does} the {WHAT[what]} in the {WHERE[what % 3]} {how}"
    for what, does, how in itertools.product(range(4), DOES, HOW)
]
SETTINGS: dict[str, Any] = {"epochs": 8, "rate": 5e-3, "batch": 8}


@pytest.fixture(scope="module")
def make_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Saves a small random model of a class of transformers, with a tokenizer of the language's words."""

    def make(kind: str = "RobertaForMaskedLM", lacks: str = "", **settings: Any) -> Path:
        folder = tmp_path_factory.mktemp("encoder")
        words = dict.fromkeys([*SPECIAL, *" ".join(LANGUAGE).split()])
        _tokenizer({word: number for number, word in enumerate(words)}, lacks).save_pretrained(folder)
        model = getattr(transformers, kind)
        sizes = {
            "vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "max_position_embeddings": 40, "type_vocab_size": 1, "pad_token_id": 1,
        }  # fmt: skip
        torch.manual_seed(0)
        model(model.config_class(**sizes | settings)).save_pretrained(folder)
        return folder

    return make


def _tokenizer(words: dict[str, int], lacks: str) -> Any:
    tokenizers: Any = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ends = [("<s>", words["<s>"]), ("</s>", words["</s>"])]
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = {"cls": 0, "bos": 0, "pad": 1, "sep": 2, "eos": 2, "unk": 3, "mask": 4}
    named = {f"{name}_token": SPECIAL[number] for name, number in names.items() if name != lacks}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=38, **named)


@pytest.fixture(scope="module")
def encoder(make_encoder: Callable[..., Path]) -> Path:
    return make_encoder()


@pytest.fixture(scope="module")
def tuned(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float], list[str]]:
    """The folder of a fine-tuned encoder, the losses, and the lines of the report."""
    path, lines = tmp_path_factory.mktemp("tuned") / "encoder", list[str]()
    return path, fine_tune(str(encoder), LANGUAGE, path, **SETTINGS, report=lines.append), lines


def _masked(tokens: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    return mask_words(tokens, torch.arange(5, 105), 4, torch.Generator().manual_seed(seed))


def test_fifteen_percent_are_predicted_and_most_of_them_masked() -> None:
    tokens = torch.randint(5, 105, (2_000, 100), generator=torch.Generator().manual_seed(0))
    inputs, labels = _masked(tokens, 1)
    predicted = labels != NOT_PREDICTED
    assert torch.equal(labels[predicted], tokens[predicted])
    assert torch.equal(inputs[~predicted], tokens[~predicted])
    assert float(predicted.float().mean()) == pytest.approx(0.15, abs=0.004)
    now, before = inputs[predicted], tokens[predicted]
    assert float((now == 4).float().mean()) == pytest.approx(0.8, abs=0.01)
    # One random word in a hundred is the word itself.
    assert float((now == before).float().mean()) == pytest.approx(0.101, abs=0.007)
    others = now[(now != 4) & (now != before)]
    assert len(others) / len(now) == pytest.approx(0.099, abs=0.007)
    assert len(set(others.tolist())) == 100


@pytest.mark.parametrize("seed", range(5))
def test_special_tokens_are_neither_predicted_nor_put_in_for_others(seed: int) -> None:
    tokens = torch.randint(0, 105, (200, 50), generator=torch.Generator().manual_seed(seed))
    inputs, labels = _masked(tokens, seed)
    special = tokens < 5
    assert special.sum() > 300
    assert torch.equal(inputs[special], tokens[special])
    assert (labels[special] == NOT_PREDICTED).all()
    replaced = inputs[inputs != tokens]
    assert ((replaced == 4) | (replaced >= 5)).all()


def test_masks_follow_from_the_seed_and_are_drawn_anew() -> None:
    tokens = torch.randint(5, 105, (8, 20), generator=torch.Generator().manual_seed(0))
    draws = torch.Generator().manual_seed(3)
    first, second = (mask_words(tokens, torch.arange(5, 105), 4, draws)[1] for _ in range(2))
    assert torch.equal(first, _masked(tokens, 3)[1])
    assert not torch.equal(first, second)


def test_rate_and_decay_are_those_of_robertas_fine_tuning() -> None:
    """Table 10 of RoBERTa's paper: 6 % of the steps warm up, then linear to 0; decay of 0.1, of matrices."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    optimizer, schedule = masked_words._optimizer(model, 1e-3, 100)
    decays = {group["weight_decay"]: group["params"] for group in optimizer.param_groups}
    assert {decay: [weight.ndim for weight in own] for decay, own in decays.items()} == {
        0.1: [2],
        0.0: [1, 1, 1],
    }
    rates = []
    for _ in range(101):
        rates.append(1000 * optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert [rates[step] for step in (0, 3, 6, 53, 100)] == pytest.approx([0, 0.5, 1, 0.5, 0])


def test_padding_and_ends_of_sentences_have_no_loss(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def noted(tokens: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        made = mask_words(tokens, *others)
        seen.append((tokens, made[1]))
        return made

    monkeypatch.setattr(masked_words, "mask_words", noted)
    monkeypatch.setattr(masked_words, "_PREDICTED", 1.0)
    model, tokenizer = masked_words._opened(str(encoder))
    texts = ["the dog", "the cat opens the door strangely"]
    total, predicted = next(masked_words._losses(model, tokenizer, texts, 2, torch.Generator()))
    ((tokens, labels),) = seen
    assert tokens.tolist()[0][-4:] == [1, 1, 1, 1]
    assert predicted == 2 + 5  # "strangely" is unknown
    assert torch.equal(labels != NOT_PREDICTED, tokens >= 5)
    assert float(total.detach()) / predicted == pytest.approx(np.log(len(tokenizer)), rel=0.2)


def test_a_sentence_longer_than_the_model_is_cut_where_the_tokenizer_has_no_limit(
    make_encoder: Callable[..., Path],
) -> None:
    folder = make_encoder()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["model_max_length"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    model, tokenizer = masked_words._opened(str(folder))
    assert tokenizer.model_max_length > 1e9
    total, predicted = next(masked_words._losses(model, tokenizer, ["door " * 90], 1, torch.Generator()))
    assert predicted <= 36  # 38 places, two of them for the ends
    assert total.isfinite()


def test_the_division_ignores_order_and_repetitions() -> None:
    training, held_out = divided(LANGUAGE)
    assert (len(training), len(held_out)) == (57, 3)
    assert sorted(training + held_out) == sorted(LANGUAGE)
    assert divided([*LANGUAGE[::-1], *LANGUAGE, " ", f" {LANGUAGE[0]} ".replace(" ", "  ")])[1] == held_out
    grown = divided([*LANGUAGE, *(f"{text} again" for text in LANGUAGE)])
    assert not set(grown[0]) & set(grown[1])


def test_the_loss_of_held_out_sentences_falls_and_the_features_change(
    encoder: Path, tuned: tuple[Path, list[float], list[str]]
) -> None:
    path, losses, lines = tuned
    assert len(losses) == 1 + SETTINGS["epochs"]
    assert min(losses) < 0.7 * losses[0]
    assert lines[0] == f"57 sentences, 3 more held out: their loss is {losses[0]:.3f}"
    assert lines[1] == f"epoch 1 of 8: loss {losses[1]:.3f}"
    best = losses.index(min(losses))
    assert lines[-1] == f"{path}: epoch {best}, loss {losses[best]:.3f}, before {losses[0]:.3f}"
    before, after = (
        encode_tokens(open_text_encoder(str(folder)), LANGUAGE[:2]) for folder in (encoder, path)
    )
    for old, new in zip(before, after, strict=True):
        assert old.shape == new.shape == (11, 32)
        assert np.abs(old - new).max() > 0.1


def test_the_best_epoch_is_written(tuned: tuple[Path, list[float], list[str]]) -> None:
    path, losses, _ = tuned
    model, tokenizer = masked_words._opened(str(path))
    again = masked_words._evaluated(model, tokenizer, divided(LANGUAGE)[1], SETTINGS["batch"])
    assert again == pytest.approx(min(losses[1:]), abs=1e-4)


def test_the_same_seed_gives_the_same_weights(
    encoder: Path, tuned: tuple[Path, list[float], list[str]], tmp_path: Path
) -> None:
    torch.manual_seed(99)  # dropout follows from the seed as well
    state = torch.random.get_rng_state()
    losses = fine_tune(str(encoder), LANGUAGE[::-1], tmp_path / "t", **SETTINGS)
    assert losses == pytest.approx(tuned[1], rel=1e-4)
    assert torch.equal(torch.random.get_rng_state(), state)
    one, other = (load_file(folder / "model.safetensors") for folder in (tuned[0], tmp_path / "t"))
    for name, weights in one.items():
        torch.testing.assert_close(weights, other[name], rtol=1e-3, atol=1e-4)


def test_another_seed_draws_other_masks(make_encoder: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    first, second = (
        fine_tune(str(folder), LANGUAGE, tmp_path / str(seed), epochs=1, rate=5e-3, seed=seed)
        for seed in (0, 1)
    )
    assert first[0] == second[0]
    assert abs(first[1] - second[1]) > 1e-3


def test_an_epoch_after_the_best_is_not_written(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[Tensor] = []
    losses = [5.0, 3.0, 2.0, 4.0, 3.0]

    def evaluated(model: Any, *_: Any) -> float:
        states.append(model.lm_head.dense.weight.detach().clone())
        return losses[len(states) - 1]

    monkeypatch.setattr(masked_words, "_evaluated", evaluated)
    assert fine_tune(str(encoder), LANGUAGE, tmp_path / "t", epochs=4, rate=5e-3) == losses
    assert torch.equal(load_file(tmp_path / "t" / "model.safetensors")["lm_head.dense.weight"], states[2])
    assert not torch.equal(states[2], states[3]) and not torch.equal(states[2], states[4])


def test_a_loss_that_does_not_improve_is_said(encoder: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    losses = fine_tune(str(encoder), LANGUAGE, tmp_path / "t", epochs=1, rate=0.0, report=lines.append)
    assert losses[0] == losses[1]
    assert lines[-1].endswith(f"; it did not improve on {encoder}, use that instead")


def test_a_training_that_breaks_off_leaves_nothing(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the loss is not finite; a rate below 1e\\+30 may help"):
        fine_tune(str(encoder), LANGUAGE, tmp_path / "t", epochs=1, rate=1e30)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "DistilBertForMaskedLM", "XLMRobertaForMaskedLM"])
def test_other_masked_language_models_are_read_as_encoders(
    make_encoder: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    settings = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4} if "Distil" in kind else {}
    folder = make_encoder(kind, **settings)
    fine_tune(str(folder), LANGUAGE, tmp_path / "t", epochs=1, rate=1e-3)
    before, after = (
        encode_tokens(open_text_encoder(str(name)), ["the dog"]) for name in (folder, tmp_path / "t")
    )
    assert before[0].shape == after[0].shape == (4, 32)
    assert not np.allclose(before[0], after[0], atol=1e-3)


@pytest.mark.parametrize("kind", ["RobertaModel", "GPT2LMHeadModel"])
def test_a_model_that_predicts_no_masked_words_is_refused(
    make_encoder: Callable[..., Path], tmp_path: Path, kind: str
) -> None:
    folder = make_encoder(kind)
    remedy = rf"{folder}: predicts no masked words .* such as FacebookAI/roberta-base"
    with pytest.raises(UsageError, match=remedy):
        fine_tune(str(folder), LANGUAGE, tmp_path / "t")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lack", [{"lacks": "mask"}, {"lacks": "pad"}, {"vocab_size": 20}])
def test_an_encoder_without_marks_or_with_too_few_words_is_refused(
    make_encoder: Callable[..., Path], tmp_path: Path, lack: dict[str, Any]
) -> None:
    folder = make_encoder(**lack)
    with pytest.raises(UsageError, match=rf"{folder}: predicts no masked words .* such as FacebookAI/"):
        fine_tune(str(folder), LANGUAGE, tmp_path / "t")
    assert not list(tmp_path.iterdir())


def test_sentences_that_the_tokenizer_does_not_know_are_refused(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"{encoder}: its tokenizer knows no word of '(東京|大阪)'"):
        fine_tune(str(encoder), ["東京", "大阪"], tmp_path / "t")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_and_leaves_nothing(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(transformers.RobertaForMaskedLM, "save_pretrained", full)
    with pytest.raises(FormatError, match=r"t: cannot be written: .*No space left on device"):
        fine_tune(str(encoder), LANGUAGE, tmp_path / "t", epochs=1)
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_named(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    with pytest.raises(UsageError, match="t: is there already; nothing is overwritten"):
        fine_tune(str(encoder), LANGUAGE, tmp_path / "t")
    with pytest.raises(UsageError, match="1 different sentence to fine-tune on; two are needed"):
        fine_tune(str(encoder), ["the dog", "The dog ", ""], tmp_path / "new")
    with pytest.raises(EncoderUnavailable, match="whenabouts models get FacebookAI/roberta-base"):
        fine_tune("FacebookAI/roberta-base", LANGUAGE, tmp_path / "new")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EncoderUnavailable, match=r"needs torch, transformers, .*sentence-transformers\]"):
        fine_tune(str(encoder), LANGUAGE, tmp_path / "new")


def run(*arguments: Any) -> int:
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers())
    options = parser.parse_args(["features", *map(str, arguments)])
    return int(options.run(options))


def test_the_command_writes_an_encoder_of_tokens(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fine_tune, "__kwdefaults__", {**(fine_tune.__kwdefaults__ or {}), **SETTINGS})
    queries = tmp_path / "queries.jsonl"
    lines = [json.dumps({"query_id": str(number), "text": text}) for number, text in enumerate(LANGUAGE)]
    queries.write_text("\n".join(lines))
    assert run("fine-tune", encoder, queries, tmp_path / "tuned") == 0
    shown = capsys.readouterr()
    out = shown.out.splitlines()
    assert not shown.err  # no progress bars of transformers
    assert len(out) == 2 + SETTINGS["epochs"] and out[-1].startswith(f"{tmp_path / 'tuned'}: epoch ")
    assert (
        run("tokens", "--queries", queries, "--encoder", tmp_path / "tuned", "--out", tmp_path / "new") == 0
    )
    assert run("tokens", "--queries", queries, "--encoder", encoder, "--out", tmp_path / "old") == 0
    with open_features(tmp_path / "new") as new, open_features(tmp_path / "old") as old:
        assert new.get("7").shape == old.get("7").shape == (11, 32)
        assert np.abs(new.get("7").astype(float) - old.get("7").astype(float)).max() > 0.1
        assert new.fingerprint.weights_sha256 != old.fingerprint.weights_sha256


@pytest.mark.parametrize("name", ["charades_sta_test.txt", "tvr_val_release.jsonl.gz", "test.json"])
def test_sentences_of_test_splits_are_refused(encoder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("AO8RW 0.0 6.9##a person is putting a book on a shelf.\n")
    with pytest.raises(UsageError, match=r"by its name the split .* of a data set"):
        run("fine-tune", encoder, tmp_path / name, tmp_path / "t")


def test_a_training_split_in_its_released_form_is_read(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []
    monkeypatch.setattr(verb, "fine_tune", lambda encoder, sentences, *_, **__: read.append(sentences))
    (tmp_path / "charades_sta_train.txt").write_text("AO8RW 0.0 6.9##a person puts a book on a shelf.\n")
    assert run("fine-tune", encoder, tmp_path / "charades_sta_train.txt", tmp_path / "t") == 0
    assert read == [["a person puts a book on a shelf."]]
