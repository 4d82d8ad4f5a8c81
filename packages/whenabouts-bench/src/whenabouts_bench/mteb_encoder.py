"""Sentence encoders of the package mteb, chosen with `--text mteb:NAME`.

The product loads this module through the entry point `mteb` of `whenabouts.encoders`. mteb knows the prompts,
instructions and pooling of hundreds of models, each by a name with a pinned revision. The weights must be in
the hub's cache: nothing is downloaded. Models that sentence-transformers can read need no mteb
(`sentence-transformers:NAME`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.encoders import on_torch, weight_files
from whenabouts.encoders.protocol import (
    EncoderSettings,
    EncoderStatus,
    EncoderUnavailable,
    TextEncoder,
    check_texts,
    fingerprint,
    unit_length,
)

PREFIX = "mteb"
ORDER = 95
_BATCH = 32
_INSTALL = "pip install 'whenabouts-bench[mteb]'"
_NO_REVISION = ("", "no_revision_available")


def recognises(name: str) -> bool:
    """False: these models are always named with the prefix."""
    del name
    return False


def status() -> EncoderStatus:
    """Whether mteb is installed; a model needs its weights as well."""
    usable = importlib.util.find_spec("mteb") is not None
    detail = (
        "the models of mteb whose weights are in the hub's cache" if usable else f"mteb missing: `{_INSTALL}`"
    )
    return EncoderStatus("mteb models", ("text",), usable, detail)


def open_text(name: str, settings: EncoderSettings) -> TextEncoder:
    """The encoder of mteb's name. Raises EncoderUnavailable with a remedy."""
    if importlib.util.find_spec("mteb") is None:
        raise EncoderUnavailable(f"{PREFIX}:{name}: needs mteb, not installed here; `{_INSTALL}`")
    import mteb
    from mteb.models.get_model_meta import MODEL_REGISTRY
    from mteb.models.models_protocols import EncoderProtocol

    if name not in MODEL_REGISTRY:
        raise EncoderUnavailable(
            f"{PREFIX}:{name}: mteb has no such model; `mteb.get_model_metas()` in Python lists all, and "
            "sentence-transformers:NAME opens others"
        )
    if settings.half_precision is not None:
        raise EncoderUnavailable(f"{PREFIX}:{name}: mteb sets the precision; leave out half_precision")
    with weight_files.loading(f"{PREFIX}:{name}", "sentence-transformers"):
        model = mteb.get_model(name, device=str(on_torch.choose_device(settings)))
    if not isinstance(model, EncoderProtocol):
        raise EncoderUnavailable(
            f"{PREFIX}:{name}: mteb has it as another kind of model; give one that encodes sentences"
        )
    if str(model.mteb_model_meta.revision or "") in _NO_REVISION:
        raise EncoderUnavailable(
            f"{PREFIX}:{name}: mteb states no revision, so vectors of different versions would look the "
            "same; give sentence-transformers:NAME, or a model that mteb lists with a revision"
        )
    return MtebEncoder(name, model, settings.batch_size or _BATCH)


class MtebEncoder:
    """A model of mteb, with its vectors normalised."""

    def __init__(self, name: str, model: Any, batch_size: int) -> None:
        self.name = f"{PREFIX}:{name}"
        self._model, self._batch_size = model, batch_size

    @cached_property
    def dimension(self) -> int:
        """Width D of a vector."""
        return int(self.encode_text(["width"]).shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """See `TextEncoder`. The revision identifies the weights, mteb's version its prompts and pooling."""
        meta, package = self._model.mteb_model_meta, version("mteb")
        parts = {"model": meta.name, "revision": meta.revision, "dimension": self.dimension}
        return fingerprint(PREFIX, version=package, **parts)

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors of queries."""
        return self._encode(texts, "query")

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, D) unit vectors of texts to be searched."""
        return self._encode(texts, "document")

    def _encode(self, texts: Sequence[str], side: str) -> NDArray[np.float32]:
        check_texts(texts)
        if not len(texts):
            return np.zeros((0, self.dimension), np.float32)
        from mteb.types import PromptType
        from torch.utils.data import DataLoader

        from datasets import Dataset

        rows = DataLoader(Dataset.from_dict({"text": list(texts)}), batch_size=self._batch_size)
        vectors = self._model.encode(
            rows, task_metadata=_task(), hf_split="test", hf_subset="default", prompt_type=PromptType(side)
        )
        return unit_length(np.asarray(vectors, np.float32))


def _task() -> Any:
    """The task passed to models: a search of sentences, without a benchmark's instructions."""
    from mteb.abstasks.task_metadata import TaskMetadata

    unknown = ("reference", "date", "domains", "task_subtypes", "license", "annotations_creators", "dialect")
    return TaskMetadata(
        name="whenabouts", description="Sentences and the words of videos.", type="Retrieval", category="t2t",
        modalities=["text"], dataset={"path": "none/none", "revision": "none"}, eval_splits=["test"],
        eval_langs=["eng-Latn"], main_score="ndcg_at_10", sample_creation=None, bibtex_citation="",
        **dict.fromkeys(unknown),
    )  # fmt: skip
