"""How fast pictures become vectors, and whether half precision on a graphics card changes what they mean.

    python benchmarks/pictures.py --out benchmarks/results/pictures.json

A CLIP of the published ViT-B/32 shape with random weights (speed does not depend on them), saved to disk
and opened as a user's would be. Pictures per second on the processor and, where there is one, on a CUDA card
in single and half precision, all in one run; then how far their vectors are from the processor's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import EncoderSettings, open_image_encoder
from whenabouts.encoders.protocol import ImageEncoder


def save_model(folder: Path) -> None:
    """A CLIPModel with random weights, its processor's settings and a small tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    CLIPModel(CLIPConfig()).save_pretrained(folder, safe_serialization=True)
    CLIPImageProcessor().save_pretrained(folder)
    words = {"<|startoftext|>": 0, "<|endoftext|>": 1, "a": 2, "dog": 3, "<unk>": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        model_max_length=77,
    )
    fast.save_pretrained(folder)


def speed(encoder: ImageEncoder, pictures: list[NDArray[np.uint8]]) -> float:
    """Pictures a second, after a warm-up."""
    encoder.encode_images(pictures[:32])
    began = time.perf_counter()
    encoder.encode_images(pictures)
    return len(pictures) / (time.perf_counter() - began)


def main() -> None:
    """Measure and write."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=int, default=512)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (224, 300, 3), dtype=np.uint8) for _ in range(options.pictures)]
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        save_model(Path(name))
        processor = open_image_encoder(name, EncoderSettings(device="cpu"))
        reference = processor.encode_images(pictures[:64])
        rows["processor"] = {"pictures_per_second": speed(processor, pictures[:96])}
        for half in (False, True) if torch.cuda.is_available() else ():
            encoder = open_image_encoder(name, EncoderSettings(device="cuda", half_precision=half))
            vectors = encoder.encode_images(pictures[:64])
            rows["card, half precision" if half else "card, single precision"] = {
                "pictures_per_second": speed(encoder, pictures),
                "largest_difference": float(np.abs(vectors - reference).max()),
                "smallest_cosine": float((vectors * reference).sum(axis=1).min()),
                "same_fingerprint": encoder.fingerprint == processor.fingerprint,
            }
    result = {
        "date": "2026-11-21",
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "card": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            **{package: version(package) for package in ("torch", "transformers", "numpy")},
        },
        "model": "CLIP ViT-B/32, random weights",
        "results": rows,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
