"""Libraries that open files by name get the very file that was checked, and no pipe can hang them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from whenabouts.encoders.onnx_bert import _map_weights
from whenabouts.intake.files import FormatError
from whenabouts.intake.opening import regular_name
from whenabouts_bench.relevance.pairs import read_arrays
from whenabouts_systems.features.layouts._hdf5 import open_hdf5
from whenabouts_systems.features.layouts._numpy_files import array_names, inspect_npy, inspect_npz
from whenabouts_systems.models.trained import _weights_in
from whenabouts_systems.released.checkpoint_file import read_checkpoint
from whenabouts_systems.training.run_folder import read_state


def read_hdf5(path: Path) -> Any:
    with open_hdf5(path) as file:
        return file["a"][:]


def write_hdf5(path: Path, values: Any) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = values


def write_npy(path: Path, values: Any) -> None:
    with path.open("wb") as stream:
        np.save(stream, values)


def write_tensors(path: Path, values: Any) -> None:
    safetensors.torch.save_file({"a": torch.from_numpy(values)}, path)


READERS: dict[str, tuple[Callable[[Path, Any], None], Callable[[Path], Any], Any, str]] = {
    "hdf5": (write_hdf5, read_hdf5, h5py, "File"),
    "npy": (write_npy, lambda path: inspect_npy(path, "a").read(), np, "memmap"),
    "weights": (write_tensors, lambda path: _weights_in(path)["a"].numpy(), safetensors.torch, "safe_open"),
    "arrays": (write_tensors, lambda path: read_arrays(path)[0]["a"], safetensors, "safe_open"),
    "mapped weights": (write_tensors, lambda path: _map_weights(path)["a"], np, "memmap"),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_link_swapped_in_between_look_and_opening_changes_nothing(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read, library, opens = READERS[kind]
    path, other = tmp_path / "a", tmp_path / "other"
    write(path, np.arange(6, dtype=np.float32))
    write(other, np.full(6, 9, np.float32))
    original, swapped = getattr(library, opens), []

    def swap_and_open(*given: Any, **named: Any) -> Any:
        path.rename(tmp_path / "moved")
        path.symlink_to(other)
        swapped.append(path)
        monkeypatch.setattr(library, opens, original)
        return original(*given, **named)

    monkeypatch.setattr(library, opens, swap_and_open)
    assert np.asarray(read(path)).tolist() == [0, 1, 2, 3, 4, 5]
    assert swapped


@pytest.mark.parametrize(
    "read",
    [
        open_hdf5,
        lambda path: inspect_npy(path, "a"),
        lambda path: inspect_npz(path, "a", None),
        read_arrays,
        read_state,
        read_checkpoint,
    ],
)
def test_a_pipe_is_refused_at_once(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="not a regular file"):
        read(tmp_path / "pipe")
    assert array_names(tmp_path / "pipe") == ()


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    before = len(list(Path("/dev/fd").iterdir()))
    with regular_name(tmp_path / "a") as name:
        assert Path(name).read_bytes() == b"abc"
    with pytest.raises(OSError, match="a folder"), regular_name(tmp_path):
        pass
    assert len(list(Path("/dev/fd").iterdir())) == before
