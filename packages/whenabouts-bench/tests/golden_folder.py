"""Where the golden numbers are, for tests that list their cases while they are collected."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[3]


def golden_folder() -> Path:
    """The folder of WHENABOUTS_GOLDEN, else the one beside the project, else the small part in here."""
    named = os.environ.get("WHENABOUTS_GOLDEN")
    if named:
        assert Path(named).is_dir(), f"WHENABOUTS_GOLDEN names {named}, which is no folder"
        return Path(named)
    beside = ROOT.parent / "shared" / "golden"
    return beside if beside.is_dir() else Path(__file__).with_name("golden")


def cases(part: str, pattern: str) -> list[Path]:
    """The case files of that name in a part of the folder, sorted; none where there is no such part.

    A part that is there and holds no such file is a fault, not a pass, unless it has files of other kinds.
    """
    folder = golden_folder() / part
    found = sorted(path for path in folder.glob(pattern) if not path.name.startswith("."))
    kinds = {path.suffix for path in folder.glob("[!.]*")}
    is_one_of_several = not pattern.startswith("*") and kinds & {".npz", ".json"}
    assert found or not folder.is_dir() or is_one_of_several, f"no {pattern} in {folder}"
    return found


def arrays_of(case: Path) -> dict[str, Tensor]:
    """The arrays of a case by name."""
    with np.load(case) as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files if name != "meta_json"}


def told_inside(case: Path) -> dict[str, Any]:
    """A case's metadata, if it is in the same file."""
    with np.load(case) as stored:
        told: dict[str, Any] = json.loads(str(stored["meta_json"]))
    return told


class Settings(dict[str, Any]):
    """A case's settings on top of the released ones; it records which are read.

    Fails, naming it, for a setting that neither the case nor the program's defaults tell.
    """

    def __init__(self, told: Mapping[str, Any], released: Mapping[str, Any] | None = None) -> None:
        super().__init__({**(released or {}), **told})
        self._read = set(released or ())

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        assert name in self, f"the case tells no {name}, of which no released default is known"
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)

    def refuse_unread(self, *harmless: str) -> None:
        """Fails if the case has a setting that was not read and may change numbers."""
        unread = sorted(set(self) - self._read - set(harmless))
        assert not unread, f"the case tells {', '.join(unread)}, which nothing here reads"


_OF_BERT = {
    *("hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps", "max_position_embeddings"),
    *("num_attention_heads", "num_hidden_layers", "type_vocab_size", "vocab_size", "initializer_range"),
    *("attention_probs_dropout_prob", "hidden_dropout_prob", "output_attentions", "output_hidden_states"),
}


def only_gelu(*parts: Mapping[str, Any], epsilon: float = 1e-5) -> None:
    """Fails where a part of a released configuration tells what our layers of BERT do not have."""
    for part in parts:
        Settings(part).refuse_unread(*_OF_BERT)
        assert part.get("hidden_act", "gelu") == "gelu", f"hidden_act {part['hidden_act']} is not implemented"
        told = part.get("layer_norm_eps", epsilon)
        assert told == epsilon, f"layer_norm_eps {told} is not implemented"
