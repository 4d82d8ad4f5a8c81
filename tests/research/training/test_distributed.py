"""Two processes on one CPU train as one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from whenabouts.research.training.devices import open_device
from whenabouts.research.training.experiment import load_experiment
from whenabouts.research.training.launch import launch
from whenabouts.types import UsageError

pytest.importorskip("lightning_fabric", reason="several processes are started by Lightning Fabric")

_SEVERAL = """
import argparse, sys
import torch
torch.set_num_threads(1)
from whenabouts.research.cli import train as command
from whenabouts.models import reloclnet, xml
from whenabouts.models.protocol import by_rows
from whenabouts.research.training import distributed
for method in (xml.Model._clips, reloclnet.Model._clips, reloclnet.Model._pooled):
    by_rows(method)
rows = []
gather = distributed.gather_rows
def seen(part, rank):
    rows.append(len(part))
    return gather(part, rank)
distributed.gather_rows = seen
parser = argparse.ArgumentParser()
command.add_parser(parser.add_subparsers())
options = parser.parse_args(["train", *sys.argv[1:]])
code = options.run(options)
assert rows and max(rows) <= 4, rows
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("system", ["xml", "reloclnet"])
def test_two_processes_train_as_one(tiny: Any, tmp_path: Path, system: str) -> None:
    """Dropout is off, for each process draws its own; negatives are drawn alike."""
    settings = [f"model.system={system}", "model.dropout=0.0", "model.input_dropout=0.0", "training.epochs=2"]
    launch(load_experiment(tiny.experiment, settings), tiny.folder, tmp_path / "one", open_device("cpu"))
    script = tmp_path / "several.py"
    script.write_text(_SEVERAL)
    done = subprocess.run(
        [sys.executable, str(script), str(tiny.experiment), "--features", str(tiny.folder)]
        + ["--out", str(tmp_path / "two"), "--device", "cpu", "--processes", "2", "--json"]
        + [part for setting in settings for part in ("--set", setting)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["ended"] == "all 2 epochs"
    ours, theirs = (load_file(tmp_path / name / "state.safetensors") for name in ("one", "two"))
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], rtol=1e-3, atol=2e-5), name


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError, match="device 'tpu9' is not here"):
        open_device("tpu9")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="device 'cuda' is not here"):
            open_device("cuda")
        assert open_device("auto").device.type == "cpu"
