"""What it costs to look at, hear and watch an hour of video: models of their published size, random weights.

    python -m benchmarks.watching --out benchmarks/results/watching.json [--models clip siglip clap qwen]

Cost does not depend on what weights hold. Each model is saved to disk and opened as a user's would be, in a
process of its own: processor seconds of its items (frames, sounds, clips) on one thread, peak memory, and the
operations of one (a multiplication and its addition count two), from which other machines can be estimated.
Needs torchvision for qwen.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import describe_machine
from benchmarks.pictures import save_model as save_clip

from whenabouts.encoders import EncoderSettings, open_image_encoder, open_sound_encoder
from whenabouts.encoders.protocol import ClipSettings, VideoClip

# What an hour of video is, by the defaults of the streams: frames, sounds, clips.
ITEMS_AN_HOUR = {"clip": 3600, "siglip": 3600, "clap": 1800, "qwen": 1800}
ITEMS = {"clip": 24, "siglip": 6, "clap": 6, "qwen": 1}
NAMES = {
    "clip": "CLIP ViT-B/32, a frame a second",
    "siglip": "SigLIP 2 base, 16-pixel patches, 224 pixels, a frame a second",
    "clap": "CLAP HTSAT-tiny, 4 s of sound every 2 s",
    "qwen": "Qwen3-VL-Embedding-2B, 8 frames over 4 s every 2 s, 256 x 448 pixels, bfloat16",
}


def save_tokenizer(folder: Path, **named: str) -> None:
    """A few words: what a model costs does not depend on them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "dog": 5}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, **named).save_pretrained(folder)


def save_siglip(folder: Path) -> None:
    from transformers import SiglipConfig, SiglipImageProcessorPil, SiglipModel

    config = SiglipConfig(text_config={"vocab_size": 256_000})
    SiglipModel(config).save_pretrained(folder)
    SiglipImageProcessorPil(size={"height": 224, "width": 224}).save_pretrained(folder)
    save_tokenizer(folder)


def save_clap(folder: Path) -> None:
    from transformers import ClapConfig, ClapFeatureExtractor, ClapModel

    ClapModel(ClapConfig()).save_pretrained(folder)
    ClapFeatureExtractor(truncation="rand_trunc").save_pretrained(folder)
    save_tokenizer(folder)


def qwen_config(tokens: dict[str, int]) -> Any:
    """Qwen3-VL 2B, by its published configuration."""
    from transformers import Qwen3VLConfig

    return Qwen3VLConfig(
        text_config={
            "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 262_144, "dtype": "bfloat16",
            "rope_scaling": {
                "rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16,
            "out_hidden_size": 2048, "num_position_embeddings": 2304, "deepstack_visual_indexes": [5, 11, 17],
        },
        image_token_id=tokens["<|image_pad|>"],
        video_token_id=tokens["<|video_pad|>"],
        vision_start_token_id=tokens["<|vision_start|>"],
        vision_end_token_id=tokens["<|vision_end|>"],
        dtype="bfloat16",
    )  # fmt: skip


_TEMPLATE = """{%- for message in messages -%}<|im_start|>{%- if message.content is string -%}
{{ message.content }}{%- else -%}{%- for part in message.content -%}
{%- if part.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
{%- elif part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- else -%}{{ part.text }}{%- endif -%}{%- endfor -%}{%- endif -%}<|im_end|>{%- endfor -%}"""


def save_qwen(folder: Path) -> None:
    """As sentence-transformers saves it; the transformer's weights are written once, in bfloat16."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        Qwen2VLImageProcessor,
        Qwen3VLModel,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    special += ["<|image_pad|>", "<|video_pad|>"]
    tokens = {
        token: place for place, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), *special])
    }
    letters = Tokenizer(models.BPE(tokens, []))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=special[1:],
    )
    size = {"shortest_edge": 4096, "longest_edge": 25_165_824}
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(patch_size=16),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=size, cap_pixels_per_frame=False),
        chat_template=_TEMPLATE,
    ).save_pretrained(folder)
    config = qwen_config(tokens)
    with torch.device("meta"):
        shapes = Qwen3VLModel(config).state_dict()
    noise = torch.randn(1 << 20, dtype=torch.bfloat16) / 50
    weights = {
        name: noise.repeat(-(-shape.numel() // len(noise)))[: shape.numel()].reshape(shape.shape).clone()
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(folder)
    kinds = [("", "base.modules.transformer.Transformer")]
    kinds += [("1_Pooling", "sentence_transformer.modules.pooling.Pooling")]
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.{kind}"}
        for idx, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    way = {"method": "forward", "method_output_name": "last_hidden_state"}
    modes = dict.fromkeys(("text", "image", "video"), way) | {"message": way | {"format": "structured"}}
    taken = {"modality_config": modes, "module_output_name": "token_embeddings"}
    (folder / "sentence_bert_config.json").write_text(json.dumps(taken))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 2048, "pooling_mode_lasttoken": True})
    )


SAVES = {"clip": save_clip, "siglip": save_siglip, "clap": save_clap, "qwen": save_qwen}


def measure(model: str, folder: str) -> dict[str, Any]:
    """One process's worth: seconds, processor seconds, peak memory and operations of an item."""
    from torch.utils.flop_counter import FlopCounterMode

    began = time.perf_counter()
    rng = np.random.default_rng(0)
    if model == "clap":
        sounds = open_sound_encoder(folder, EncoderSettings("cpu", threads=1))
        items: list[Any] = [rng.normal(size=4 * 48_000).astype(np.float32) / 9 for _ in range(ITEMS[model])]
        encode: Any = sounds.encode_sounds
    elif model == "qwen":
        watching: Any = open_image_encoder(folder, EncoderSettings("cpu", threads=1, half_precision=True))
        settings: ClipSettings = watching.clip_settings
        shape = (settings.frames, settings.size, 448, 3)
        items = [
            VideoClip(
                list(rng.integers(0, 256, shape, dtype=np.uint8)),
                [place / 2 for place in range(settings.frames)],
            )
        ]
        encode = watching.encode_clips
    else:
        encode = open_image_encoder(folder, EncoderSettings("cpu", threads=1)).encode_images
        items = [rng.integers(0, 256, (224, 398, 3), dtype=np.uint8) for _ in range(ITEMS[model])]
    opened = time.perf_counter() - began
    with FlopCounterMode(display=False) as counter:
        encode(items[:1])
    cpu, wall = time.process_time(), time.perf_counter()
    encode(items)
    return {
        "opened_s": round(opened, 1),
        "items": len(items),
        "seconds_an_item": round((time.perf_counter() - wall) / len(items), 4),
        "processor_seconds_an_item": round((time.process_time() - cpu) / len(items), 4),
        "operations_an_item": counter.get_total_flops(),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


def parameters(model: str) -> int:
    """How many weights a model has, counted without making them."""
    import torch
    from transformers import AutoModel, ClapConfig, CLIPConfig, SiglipConfig

    pads = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    configs = {
        "clip": CLIPConfig,
        "siglip": lambda: SiglipConfig(text_config={"vocab_size": 256_000}),
        "clap": ClapConfig,
        "qwen": lambda: qwen_config({token: place for place, token in enumerate(pads)}),
    }
    with torch.device("meta"):
        return sum(weights.numel() for weights in AutoModel.from_config(configs[model]()).parameters())


def main() -> None:
    """Measure and write."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:4])))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["clip", "siglip", "clap", "qwen"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    for model in options.models:
        row: dict[str, Any] = {"name": NAMES[model], "parameters": parameters(model)}
        row["items_an_hour"] = ITEMS_AN_HOUR[model]
        with tempfile.TemporaryDirectory() as folder:
            code = f"from benchmarks.watching import *; SAVES[{model!r}](Path({folder!r}))"
            subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.watching", "--measure"]
            done = subprocess.run([*command, model, folder], capture_output=True, text=True, check=True)
        row |= json.loads(done.stdout.splitlines()[-1])
        row["processor_seconds_an_hour"] = round(row["processor_seconds_an_item"] * row["items_an_hour"])
        rows[model] = row
        print(json.dumps(row), flush=True)
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("torch", "transformers", "sentence-transformers", "numpy"),
        "models": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
