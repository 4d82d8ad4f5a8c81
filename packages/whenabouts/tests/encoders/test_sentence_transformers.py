"""sentence-transformers models by path."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.encoders import EncoderUnavailable, encode_passages, open_text_encoder

# Importing it takes seconds, in every process that collects the tests.
pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)


@pytest.mark.slow
def test_prompts_of_the_model_are_used(bert_folder: Callable[..., Path]) -> None:
    plain = open_text_encoder(f"sentence-transformers:{bert_folder('max')}")
    asking = open_text_encoder(str(bert_folder("max", prompts={"query": "query: ", "document": "passage: "})))
    np.testing.assert_allclose(asking.encode_text(["dogs"]), plain.encode_text(["query: dogs"]), atol=1e-6)
    np.testing.assert_allclose(
        encode_passages(asking, ["dogs"]), plain.encode_text(["passage: dogs"]), atol=1e-6
    )
    assert asking.fingerprint != plain.fingerprint


@pytest.mark.parametrize("family", ["sentence-transformers", "onnx"])
def test_an_e5_that_carries_no_prompts_gets_those_of_its_paper(
    bert_folder: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    folder = bert_folder("mean")
    shutil.copytree(folder, tmp_path / "multilingual-e5-small")
    plain = open_text_encoder(f"{family}:{folder}")
    asking = open_text_encoder(f"{family}:{tmp_path / 'multilingual-e5-small'}")
    np.testing.assert_allclose(asking.encode_text(["dogs"]), plain.encode_text(["query: dogs"]), atol=1e-6)
    np.testing.assert_allclose(
        encode_passages(asking, ["dogs"]), plain.encode_text(["passage: dogs"]), atol=1e-6
    )
    assert asking.fingerprint != plain.fingerprint


@pytest.mark.parametrize("family", ["sentence-transformers", "onnx"])
def test_a_model_beneath_a_folder_named_after_e5_is_no_e5(
    bert_folder: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    shutil.copytree(bert_folder("mean"), tmp_path / "e5-base-trials" / "bert")
    opened = open_text_encoder(f"{family}:{tmp_path / 'e5-base-trials' / 'bert'}")
    assert "prompts" not in opened.fingerprint


@pytest.mark.parametrize("family", ["sentence-transformers", "onnx"])
def test_an_e5_saved_under_another_name_is_known_in_both_families(
    bert_folder: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    shutil.copytree(bert_folder("mean"), tmp_path / "mine")
    config = json.loads((tmp_path / "mine" / "config.json").read_text())
    config["_name_or_path"] = "intfloat/e5-small"
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    assert "prompts=e5" in open_text_encoder(f"{family}:{tmp_path / 'mine'}").fingerprint


def test_copies_in_two_folders_have_one_fingerprint(bert_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder = bert_folder("max")
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert (
        open_text_encoder(str(folder)).fingerprint
        == open_text_encoder(str(tmp_path / "elsewhere")).fingerprint
    )


@pytest.mark.parametrize(("lost", "is_refused"), [("encoder.layer.0.output", True), ("pooler", False)])
def test_weights_that_are_missing_are_refused_if_sentences_depend_on_them(
    bert_folder: Callable[..., Path], tmp_path: Path, lost: str, is_refused: bool
) -> None:
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(bert_folder(), tmp_path / "bert")
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if lost not in name}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    if is_refused:
        with pytest.raises(EncoderUnavailable, match="the weights lack encoder"):
            open_text_encoder(f"sentence-transformers:{folder}")
    else:
        assert open_text_encoder(f"sentence-transformers:{folder}").encode_text(["a ship"]).shape[0] == 1


def test_pickled_weights_are_refused(bert_folder: Callable[..., Path]) -> None:
    folder = bert_folder("max")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(EncoderUnavailable, match="can run code"):
        open_text_encoder(f"sentence-transformers:{folder}")


def test_both_ways_to_run_a_bert_agree(bert_folder: Callable[..., Path]) -> None:
    folder = bert_folder("mean")
    texts = ["two dogs run along the beach", "a pan", ""]
    expected = open_text_encoder(f"sentence-transformers:{folder}").encode_text(texts)
    np.testing.assert_allclose(open_text_encoder(f"onnx:{folder}").encode_text(texts), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "pooled"),
    [("sup-simcse-small", True), ("unsup-simcse-small", False), ("a-bert", None), ("sup-simcse-bare", False)],
)
def test_simcse_by_name_takes_the_first_token_as_it_was_trained_to(
    name: str, pooled: bool | None, bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    import torch
    import transformers

    folder = tmp_path / name
    shutil.copytree(bert_folder("max"), folder)
    (folder / "modules.json").unlink()
    torch.manual_seed(4)
    model = transformers.BertModel(
        transformers.BertConfig.from_pretrained(folder), add_pooling_layer=name != "sup-simcse-bare"
    ).eval()
    model.save_pretrained(folder)
    texts = ["two dogs run along the beach", "a pan"]
    found = open_text_encoder(f"sentence-transformers:{folder}").encode_text(texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(texts, found, strict=True):
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"))
        words = output.last_hidden_state[0]
        expected = words.mean(0) if pooled is None else output.pooler_output[0] if pooled else words[0]
        np.testing.assert_allclose(vector, (expected / expected.norm()).numpy(), atol=1e-5)


def test_how_a_simcse_makes_sentences_is_part_of_its_fingerprint(
    bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    marks = set()
    for name in ("unsup-simcse-small", "a-bert"):
        folder = tmp_path / name
        shutil.copytree(bert_folder("max"), folder)
        (folder / "modules.json").unlink()
        marks.add(open_text_encoder(f"sentence-transformers:{folder}").fingerprint)
    assert len(marks) == 2


@pytest.mark.parametrize("path", ["../elsewhere", "", 7])
def test_a_model_whose_modules_lie_elsewhere_is_not_read_there(
    bert_folder: Callable[..., Path], tmp_path: Path, path: Any
) -> None:
    from whenabouts.encoders.onnx_bert import _read_recipe

    folder = tmp_path / "model"
    shutil.copytree(bert_folder("mean"), folder)
    shutil.copytree(folder / "1_Pooling", tmp_path / "elsewhere")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = path
    (folder / "modules.json").write_text(json.dumps(modules))
    said = _read_recipe(folder)
    assert isinstance(said, str) and said.startswith("its configuration cannot be read (")
