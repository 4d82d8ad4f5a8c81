"""Find person names with a token classification model of `transformers` (named entity recognition)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from whenabouts.encoders import EncoderUnavailable
from whenabouts.encoders.on_torch import quiet_transformers
from whenabouts.encoders.weight_files import locate
from whenabouts_bench.relevance.imprecise.protocol import RewriterUnavailable

LEAST = 0.8
"""The minimal probability of a name: paper 004, appendix A."""
_TEXTS_AT_ONCE = 64


class TokenModelNames:
    """Names by a token classifier, by hub name or folder; classes of persons contain PER.

    Raises RewriterUnavailable if it is not such a model, or not on this machine.
    """

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("torch") is None:
            raise RewriterUnavailable(
                f"{name}: needs the package transformers: pip install 'whenabouts[vision]'"
            )
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            place = locate(name)
            with quiet_transformers():
                self._tokenizer = AutoTokenizer.from_pretrained(str(place.path), **options)
                self._model, loading = AutoModelForTokenClassification.from_pretrained(
                    str(place.path), use_safetensors=True, output_loading_info=True, **options
                )
        except (OSError, ValueError, EncoderUnavailable) as error:
            reason = str(error).partition("\n")[0]
            raise RewriterUnavailable(f"{name}: is not a model that finds names ({reason})") from error
        if loading["missing_keys"]:
            raise RewriterUnavailable(
                f"{name}: has no weights for classes of tokens; name one that was trained so"
            )
        labels = self._model.config.id2label
        self._persons = [int(number) for number, label in labels.items() if "PER" in str(label).upper()]
        if not self._persons or not self._tokenizer.is_fast:
            raise RewriterUnavailable(
                f"{name}: has no class of persons among {', '.join(map(str, labels.values()))}"
            )
        self._model.eval()
        self.fingerprint = f"token classes {name} least={LEAST}"

    def names(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        spotted: list[tuple[str, ...]] = []
        for begin in range(0, len(texts), _TEXTS_AT_ONCE):
            spotted += self._names(list(texts[begin : begin + _TEXTS_AT_ONCE]))
        return spotted

    def _names(self, texts: list[str]) -> list[tuple[str, ...]]:
        import torch

        inputs = self._tokenizer(
            texts, padding=True, truncation=True, return_offsets_mapping=True, return_tensors="pt"
        )
        places = inputs.pop("offset_mapping").tolist()
        with torch.inference_mode():
            classes = self._model(**inputs).logits.softmax(-1)
        persons = classes[..., self._persons].sum(-1) >= LEAST
        return [
            _joined(text, [tuple(place) for place, is_person in zip(row, flags, strict=True) if is_person])
            for text, row, flags in zip(texts, places, persons.tolist(), strict=True)
        ]


def _joined(text: str, places: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Token spans as words, joined if only blanks lie between; special tokens are skipped."""
    spans: list[list[int]] = []
    for begin, end in places:
        if begin == end:
            continue
        if spans and not text[spans[-1][1] : begin].strip():
            spans[-1][1] = end
        else:
            spans.append([begin, end])
    return tuple(text[begin:end] for begin, end in spans)
