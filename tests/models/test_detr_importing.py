"""Checkpoints of the DETR family are imported whole, or refused, and score as they were written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from whenabouts.formats.files import FormatError
from whenabouts.models import config_of, new_model
from whenabouts.models.released.importing import Imported, import_checkpoint
from whenabouts.models.released.settings import Overrides
from whenabouts.models.trained import Trained

from .detr_cases import SYSTEMS, DetrCase, detr_cases, opened
from .small_batches import small_batch


class EasyDict(dict):  # type: ignore[type-arg]
    """Stands for the class of that name, whose package is not here when a checkpoint is read."""


def small(system: str) -> Any:
    torch.manual_seed(0)
    settings = {
        "streams": {"vision": 510},
        "query_width": 5,
        "hidden": 8,
        "heads": 2,
        "feedforward": 12,
        "encoder_layers": 1,
        "decoder_layers": 3,
        "windows": 4,
        **({"inner": 9, "whole_walk": False} if system == "uvcom" else {}),
    }
    return new_model(system, config_of(system, settings)).eval()


def write(path: Path, model: Any, system: str, **options: Any) -> Path:
    """As lighthouse writes one: options of a foreign class, and a table that nothing reads."""
    import importlib

    names = importlib.import_module(f"whenabouts.models.{system}").released_names(model.config)
    tensors = {theirs: model.state_dict()[ours] for ours, theirs in names.items()}
    tensors["txt_position_embed.position_embeddings.weight"] = torch.zeros(3, 8)
    told = EasyDict({"nheads": 2, "max_q_l": 32, "clip_length": 2, "eval_path": None, **options})
    torch.save({"model": tensors, "optimizer": {}, "epoch": 7, "opt": argparse.Namespace(**told)}, path)
    return path


def imported(path: Path, system: str, **asked: Any) -> Imported:
    return import_checkpoint(system, path, Overrides(**{"tef": True, **asked}))


def answered(model: Any) -> Tensor:
    stream = next(iter(model.config.streams))
    batch = small_batch({stream: model.config.streams[stream]}, [9, 4], [5, 3], [0, 1])
    with torch.no_grad():
        found: Tensor = model.score_spans(
            model.encode_queries(batch.queries), model.encode_videos(batch.videos)
        ).windows
    return found


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_imported_checkpoint_answers_as_the_system_it_was_written_from(
    system: str, tmp_path: Path
) -> None:
    model = small(system)
    found = imported(write(tmp_path / "best.ckpt", model, system, max_v_l=60, eos_coef=0.3), system)
    assert torch.equal(answered(found.trained.model), answered(model))
    config, inputs = found.trained.model.config, found.trained.inputs
    assert (config.longest_clips, config.weight_background) == (60, 0.3)
    assert (inputs.clip_seconds, inputs.max_tokens, inputs.long_videos) == (2.0, 32, "cut")
    found.write(tmp_path / "made")
    again = Trained.from_pretrained(tmp_path / "made")
    assert torch.equal(answered(again.model), answered(model))


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_the_file_does_not_tell_is_guessed_and_told(system: str, tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small(system), system)
    found = import_checkpoint(system, path, Overrides())
    assert "features of 512 values: without temporal endpoint features (--tef, --no-tef)" in found.guessed
    walk = any("whole_walk to true" in guess for guess in found.guessed)
    assert (len(found.guessed), walk) == ((2, True) if system == "uvcom" else (1, False))
    assert found.trained.model.config.streams == {"vision": 512}


def test_a_checkpoint_of_another_system_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small("qd_detr"), "qd_detr")
    with pytest.raises(FormatError, match="has left over global_rep_pos"):
        imported(path, "moment_detr")


def test_a_head_whose_two_copies_differ_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small("eatr"), "eatr")
    told = torch.load(path, weights_only=False)
    head = "moment_span_embed.layers.0.bias"
    told["model"][f"transformer.decoder.{head}"] = told["model"][head].clone()
    torch.save({"model": told["model"]}, path)
    assert imported(path, "eatr", heads=2)
    told["model"][f"transformer.decoder.{head}"][0] += 1
    torch.save({"model": told["model"]}, path)
    with pytest.raises(FormatError, match=f"{head}' are one parameter, and differ here"):
        imported(path, "eatr", heads=2)


@pytest.mark.parametrize("path", [p for s in SYSTEMS for p in detr_cases(s)], ids=lambda path: path.stem)
def test_golden_weights_are_imported(path: Path, tmp_path: Path) -> None:
    case: DetrCase = opened(path)
    tensors = {
        name.removeprefix("sd."): value for name, value in case.arrays.items() if name.startswith("sd.")
    }
    options = {**case.told["options"], "nheads": case.model.config.heads}
    torch.save({"model": tensors, "epoch": 0, "opt": options}, tmp_path / "best.ckpt")
    found = import_checkpoint(case.told["model"], tmp_path / "best.ckpt", Overrides(tef=True))
    theirs = found.trained.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in case.model.state_dict().items())
