"""Checkers from `transformers`: models that read pictures and write text, by name or folder.

`AutoModelForImageTextToText` must open the model, and its processor must have a chat template. The model runs
on this machine.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from whenabouts.checkers.protocol import PROMPT, Checker, CheckerError, CheckerUnavailable, Part
from whenabouts.encoders import EncoderSettings, EncoderUnavailable, on_torch, weight_files
from whenabouts.intake.hub import ModelCard, is_name
from whenabouts.lines import first_line

ORDER = 50
MODELS = (
    ModelCard("HuggingFaceTB/SmolVLM2-500M-Video-Instruct", "--check, small"),
    ModelCard("Qwen/Qwen3-VL-2B-Instruct", "--check, better"),
)
"""Entries of `whenabouts models list`."""
_NEEDS = ("torch", "transformers", "PIL")
_MOST_TOKENS = 200


def recognises(name: str) -> bool:
    """True for a folder, and for a possible hub name."""
    return weight_files.local_folder(name) is not None or is_name(name)


def open(name: str, *, send_frames: bool) -> Checker:
    """The checker of that name or folder. Raises CheckerUnavailable with a remedy."""
    try:
        weight_files.require(name, _NEEDS, "vision")
        folder = weight_files.locate(name)
        with weight_files.loading(name, "vision"):
            return VisionLanguageChecker(folder, EncoderSettings())
    except EncoderUnavailable as error:
        raise CheckerUnavailable(str(error)) from error


class VisionLanguageChecker:
    """A vision-language model with its processor; used by one thread at a time."""

    runs_here = True

    def __init__(self, folder: weight_files.ModelFolder, settings: EncoderSettings) -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self._folder = folder.path
        self.name = folder.path.name if weight_files.local_folder(folder.name) else folder.name
        self._turn = threading.Lock()
        self._device = on_torch.choose_device(settings)
        dtype = on_torch.choose_dtype(settings, self._device)
        with on_torch.quiet_transformers():
            self._processor = weight_files.pretrained(AutoProcessor, folder)
            model, missing = weight_files.opened_model(AutoModelForImageTextToText, folder, dtype)
        if missing:
            raise EncoderUnavailable(
                f"{self.name}: the weights lack {missing[0]}; are they of another model?"
            )
        if not getattr(self._processor, "chat_template", None):
            raise EncoderUnavailable(
                f"{self.name}: has no chat template, so it cannot be asked; give a chat model"
            )
        self._model = model.to(self._device).eval()

    @cached_property
    def fingerprint(self) -> str:
        weights = weight_files.weights_hash(weight_files.safetensors_files(self._folder))
        return f"transformers prompt={PROMPT} model={type(self._model).__name__} weights={weights}"

    def answer(self, instructions: str, parts: Sequence[Part], seconds: float) -> str:
        with self._turn:
            try:
                return self._generated(instructions, parts, seconds)
            except Exception as error:  # chat templates and models raise errors of many kinds
                if weight_files.is_out_of_memory(error):
                    raise CheckerUnavailable(
                        f"{self.name} needs more memory than there is; give a smaller model, or one behind "
                        "an address"
                    ) from error
                raise CheckerError(f"{self.name} cannot answer ({first_line(error)[:200]})") from error

    def _generated(self, instructions: str, parts: Sequence[Part], seconds: float) -> str:
        import torch
        from PIL import Image

        content: list[dict[str, Any]] = [
            {"type": "text", "text": part}
            if isinstance(part, str)
            else {"type": "image", "image": Image.open(io.BytesIO(part)).convert("RGB")}
            for part in parts
        ]
        messages = [
            {"role": "system", "content": [{"type": "text", "text": instructions}]},
            {"role": "user", "content": content},
        ]
        inputs = self._processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        ).to(self._device, self._model.dtype)
        with torch.inference_mode():
            written = self._model.generate(
                **inputs, max_new_tokens=_MOST_TOKENS, do_sample=False, max_time=max(1.0, seconds)
            )
        answer = written[:, inputs["input_ids"].shape[1] :]
        text: str = self._processor.batch_decode(answer, skip_special_tokens=True)[0]
        return text.strip()
