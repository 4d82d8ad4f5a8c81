"""Files of numbers, mutated: HDF5, npy, npz, LMDB, our store, safetensors and PyTorch's checkpoints."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tests.features.conftest import VARIANTS, make_items
from tests.fuzz.apart import Apart
from tests.fuzz.bytes import damaged
from tests.fuzz.trials import Did, many

from whenabouts.encoders.onnx_bert import _map_weights
from whenabouts_bench.relevance.pairs import read_arrays
from whenabouts_systems.features import open_features
from whenabouts_systems.models.trained import _weights_in
from whenabouts_systems.released.checkpoint_file import read_checkpoint

_MOST_BYTES = 300 << 20
_TENSORS = {
    "weights": _weights_in,
    "arrays": read_arrays,
    "mapped": _map_weights,
    "checkpoint": read_checkpoint,
}


def read(given: tuple[str, Path]) -> None:
    """Read all of a file, as the commands do."""
    kind, path = given
    if kind in _TENSORS:
        _TENSORS[kind](path)
        return
    with open_features(path) as source:
        _ = source.fingerprint
        for item in list(source)[:20]:
            source.get(item)


class Attack:
    """Reads one mutated file a trial."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._apart = Apart(read, _MOST_BYTES)
        for number, (_, make) in enumerate(VARIANTS.values()):
            make(folder / f"whole {number}", make_items(count=3))
        tensors = {"a": torch.ones(3, 4), "b.weight": torch.zeros(5, dtype=torch.float16)}
        safetensors.torch.save_file(tensors, folder / "whole weights", metadata={"about": "{}"})
        torch.save({"model": tensors, "args": {"lr": 1.0}}, folder / "whole checkpoint")
        torch.save(tensors, folder / "whole old checkpoint", _use_new_zipfile_serialization=False)

    def try_once(self, rng: random.Random) -> Did:
        """Try many."""
        return many(self._one, rng)

    def _one(self, rng: random.Random) -> Did:
        """Damage a copy of a file, or a file of a folder, and read it."""
        whole = rng.choice(sorted(self._folder.glob("whole*")))
        path = self._folder / f"bad{rng.choice(('.h5', '.npz', '.safetensors', ''))}"
        for old in self._folder.glob("bad*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        (shutil.copytree if whole.is_dir() else shutil.copy)(whole, path)
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        target = rng.choice(files)
        data, way = _hostile_number(target.read_bytes(), rng)
        for _ in range(rng.choice((0, 1, 1, 3))):
            data, way = damaged(data, rng, rng.choice(files).read_bytes())
        target.write_bytes(data)
        kind = (
            rng.choice(sorted(_TENSORS))
            if "weights" in whole.name or "checkpoint" in whole.name
            else "features"
        )
        came, findings = self._apart((kind, path))
        return Counter({came: 1}), [f"{kind}, {whole.name}, {way}: {finding}" for finding in findings]


def _hostile_number(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Sometimes a number of the text parts (shapes, offsets) made huge, or a little other."""
    digits: list[Any] = [at for at, byte in enumerate(data[:4000]) if 48 <= byte <= 57]
    if not digits or rng.random() < 0.5:
        return data, "as it was"
    at = rng.choice(digits)
    number = rng.choice((b"0", b"9", b"-1", b"99999999", b"4294967296", b"9223372036854775807", b"1e999"))
    same = rng.random() < 0.5
    return data[:at] + number + data[at + (len(number) if same else 1) :], "a number"
