"""Helpers for encoders in PyTorch: device, precision, batches, tokens, and loading without messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders.protocol import EncoderSettings, EncoderUnavailable, unit_length
from whenabouts.encoders.weight_files import is_out_of_memory, model_config, out_of_memory
from whenabouts.lines import first_line

if TYPE_CHECKING:
    import torch


def choose_device(settings: EncoderSettings) -> torch.device:
    """The device of the settings, or the best available one: CUDA, then Apple's, then the CPU.

    Sets PyTorch's number of threads (for the whole process) to `settings.threads` if given. Raises
    EncoderUnavailable for a device that cannot be used.
    """
    import torch

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    if settings.device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(settings.device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise EncoderUnavailable(
            f"device {settings.device!r} cannot be used ({first_line(error)}); "
            "give cpu, cuda, cuda:N or mps, or leave it out"
        ) from error
    return device


def choose_dtype(settings: EncoderSettings, device: torch.device) -> torch.dtype:
    """float16 if the settings ask for half precision, or on CUDA by default; else float32."""
    import torch

    half = device.type == "cuda" if settings.half_precision is None else settings.half_precision
    return torch.float16 if half else torch.float32


def model_dtype(folder: Path, settings: EncoderSettings, device: torch.device) -> torch.dtype:
    """As `choose_dtype`; a model saved in bfloat16 overflows in float16, so it uses bfloat16 instead."""
    import torch

    config = model_config(folder) or {}
    parts = (config, config.get("text_config") or {})
    dtype = choose_dtype(settings, device)
    is_brain = any("bfloat16" in (part.get("dtype"), part.get("torch_dtype")) for part in parts)
    return torch.bfloat16 if dtype == torch.float16 and is_brain else dtype


def in_batches(
    encode: Callable[[Any], torch.Tensor], items: Sequence[Any], size: int, width: int, *, remedy: str
) -> NDArray[np.float32]:
    """(N, D) unit vectors of items, encoded `size` at a time, or fewer if memory runs out.

    Raises EncoderOutOfMemory with the `remedy` if a single item is too much.
    """
    import torch

    vectors, start = np.empty((len(items), width), dtype=np.float32), 0
    while start < len(items):
        part = items[start : start + size]
        try:
            with torch.inference_mode():
                features = encode(part).float().cpu().numpy()
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if len(part) == 1:
                raise out_of_memory(error, remedy) from error
            size = len(part) // 2
        else:
            vectors[start : start + len(part)] = unit_length(features)
            start += len(part)
    return vectors


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress progress bars and notes of `transformers` while a model is loaded."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def moved(inputs: Mapping[str, Any], device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """A model's inputs with their tensors on a device, those of floating-point numbers as `dtype`."""
    import torch

    return {
        name: value.to(device, dtype if value.is_floating_point() else None)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }


def tokenized(tokenizer: Any, texts: list[str], padding: str, most: int) -> Any:
    """The tokens of some texts as tensors, truncated to `most`; `padding` is "longest" or "max_length"."""
    return tokenizer(texts, padding=padding, truncation=True, max_length=most, return_tensors="pt")


def pooled(output: Any) -> torch.Tensor:
    """The vectors in a model's output: `pooler_output` since version 5 of transformers, before the output."""
    features: torch.Tensor = getattr(output, "pooler_output", output)
    return features
