"""Opens rerankers of sentence-transformers, prepares their inputs and checks their scores."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from whenabouts.checkers.protocol import CheckerError, CheckerUnavailable
from whenabouts.checkers.reranker import Document
from whenabouts.encoders import EncoderSettings, on_torch, weight_files
from whenabouts.encoders.plain_text import plain_texts, special_tokens
from whenabouts.lines import first_line

CROSS, LATE = "CrossEncoder", "MultiVectorEncoder"


def class_of(name: str) -> str | None:
    """The class of sentence-transformers that opens a model, by its folder or hub name.

    "" if the model is not a reranker; None if neither a folder nor the cache has it.
    """
    folder = weight_files.folder_at_hand(name)
    if folder is None:
        return None
    settings = weight_files.json_object(folder / "config_sentence_transformers.json") or {}
    stated = str(settings.get("model_type") or "")
    if stated:
        return {CROSS: CROSS, LATE: LATE, "ColBERT": LATE}.get(stated, "")
    config = weight_files.model_config(folder) or {}
    architectures = config.get("architectures")
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if architecture == "HF_ColBERT" or architecture.endswith("ForRetrieval"):
        return LATE
    is_causal = architecture.endswith(("ForCausalLM", "ForConditionalGeneration"))
    is_named = "rerank" in f"{name} {config.get('_name_or_path', '')}".lower()
    return CROSS if architecture.endswith("ForSequenceClassification") or (is_causal and is_named) else ""


class SentenceModel:
    """A `CROSS` or `LATE` model from a folder or the cache; one thread at a time uses it."""

    def __init__(self, name: str, kind: str) -> None:
        weight_files.require(name, ("sentence_transformers",), "sentence-transformers")
        folder = weight_files.locate(name)
        extra = "sentence-transformers"
        if "vision_config" in (weight_files.model_config(folder.path) or {}):
            extra = "video"
            weight_files.require(name, ("PIL",), extra)
        self._folder = folder.path
        self.name = folder.path.name if weight_files.local_folder(name) else folder.name
        self._kind, self._turn = kind, threading.Lock()
        with weight_files.loading(name, extra):
            import sentence_transformers

            settings = EncoderSettings()
            device = on_torch.choose_device(settings)
            # Late interaction reads the vectors of tokens, never the pooled one.
            unused = "" if kind == CROSS else "pooler."
            with on_torch.quiet_transformers(), weight_files.whole_models(folder, unused):
                self.model = getattr(sentence_transformers, kind)(
                    str(folder.path),
                    device=str(device),
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={
                        "use_safetensors": True,
                        "dtype": on_torch.model_dtype(folder.path, settings, device),
                    },
                )
        self._special = special_tokens(self.model)
        self.takes_chats = "message" in self.model.modalities
        self.sees = "image" in self.model.modalities

    @cached_property
    def fingerprint(self) -> str:
        weights = [*weight_files.safetensors_files(self._folder), *self._folder.glob("*/model*.safetensors")]
        inputs = sorted([*self._folder.glob("*.json"), *self._folder.glob("*/*.json")])
        digest = weight_files.weights_hash(sorted(weights))
        return f"{self._kind} weights={digest} inputs={weight_files.content_mark(inputs)}"

    def plain(self, text: str) -> str:
        """The text, changed so that the library reads it as words and nothing else (`plain_texts`)."""
        return plain_texts([text], self._special)[0]

    def input_of(self, document: Document) -> Any:
        """A document as the library takes it: a text, or a frame with its words."""
        words = self.plain(document.words)
        if document.picture is None or not self.sees:
            return words
        from PIL import Image

        frame = {"image": Image.open(io.BytesIO(document.picture)).convert("RGB")}
        return {**frame, "text": words} if self.takes_chats and words else frame

    def scores_from(self, ask: Callable[[], Any], count: int) -> list[float]:
        """The scores that `ask` returns, one finite number for each of `count` documents.

        Raises CheckerError, or CheckerUnavailable if memory does not suffice.
        """
        with self._turn, _faults(self.name), on_torch.quiet_transformers():
            scores = [float(score) for score in ask()]
        if len(scores) != count or not all(map(math.isfinite, scores)):
            raise CheckerError(f"{self.name} gives no score for each moment; give a model with one score")
        return scores


@contextmanager
def _faults(name: str) -> Iterator[None]:
    """Raise errors of a model's libraries as CheckerError or CheckerUnavailable."""
    try:
        yield
    except Exception as error:  # chat templates and models raise errors of many kinds
        if weight_files.is_out_of_memory(error):
            raise CheckerUnavailable(
                f"{name} needs more memory than there is; give a smaller model"
            ) from error
        raise CheckerError(f"{name} cannot score ({first_line(error)[:200]})") from error
