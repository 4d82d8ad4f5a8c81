from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from whenabouts.intake.files import FormatError
from whenabouts_systems.training.experiment import TrainingSettings
from whenabouts_systems.training.optimizer import new_optimizer
from whenabouts_systems.training.run_folder import State, read_state, restore, save_state


def made(width: int = 3) -> tuple[nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(width, 2)
    optimizer = new_optimizer(TrainingSettings(learning_rate=0.1, weight_decay=0.1), model)
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_all_that_is_kept_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    model, optimizer = made()
    state = State(epoch=3, batch=2, step=17, sums={"a": 0.1 + 0.2}, counted=2, best=1 / 3, seconds=1.5)
    state.end_line({"epoch": 1, "losses": state.means()})
    save_state(tmp_path / "state", state, model, optimizer)
    assert read_state(tmp_path / "state") == state
    other, fresh = made()
    nn.init.zeros_(other.weight)
    restore(tmp_path / "state", other, fresh)
    assert torch.equal(other.weight, model.weight)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(optimizer.state[ours]["second"], fresh.state[theirs]["second"])


def test_a_file_that_is_no_state_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state"
    model, optimizer = made()
    save_state(path, State(), model, optimizer)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"\x80\x04K\x01."):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="state: is not the saved state of a training"):
            read_state(path)
    path.write_bytes(whole.replace(b'\\"version\\": 1', b'\\"version\\": 9'))
    with pytest.raises(FormatError, match="saved by another version 9; accepted: 1"):
        read_state(path)


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    save_state(tmp_path / "state", State(), *made())
    with pytest.raises(FormatError, match="does not fit the experiment"):
        restore(tmp_path / "state", *made(width=4))


def test_losses_are_counted_between_two_lines() -> None:
    state = State()
    state.count({"a": 1.0})
    state.count({"a": 3.0, "b": 1.0})
    assert state.means() == {"a": 2.0, "b": 0.5}
    assert (state.step, state.batch) == (2, 2)
    state.end_line({"epoch": 1})
    assert (state.means(), state.counted, state.curves) == ({}, 0, [{"epoch": 1}])


def test_a_state_of_other_types_is_refused(tmp_path: Path) -> None:
    for kept in ('{"epoch": "x"}', '{"curves": 3}', "[]", "[" * 100_000, '{"epoch": 1e999}'):
        position = f'{{"version": 1, "state": {kept}}}'
        save_file({}, tmp_path / "state", metadata={"training": position})
        with pytest.raises(FormatError, match="is not the saved state of a training"):
            read_state(tmp_path / "state")
