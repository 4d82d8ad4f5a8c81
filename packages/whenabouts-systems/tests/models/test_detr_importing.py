"""Checkpoints of the DETR family are imported whole, or refused, and score as they were written."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.detr_cases import SYSTEMS, DetrCase, detr_cases, opened
from tests.models.small_batches import small_batch
from tests.small_clip import write_clip
from torch import Tensor
from torch.nn.modules.module import register_module_parameter_registration_hook

from whenabouts.encoders import open_image_encoder, token_fingerprint
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released.importing import Imported, import_checkpoint
from whenabouts_systems.released.settings import Overrides


class EasyDict(dict):  # type: ignore[type-arg]
    """Stands for the class of that name, whose package is not here when a checkpoint is read."""


def small(system: str, **streams: int) -> Any:
    torch.manual_seed(0)
    settings = {
        "streams": streams or {"vision": 510},
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

    names = importlib.import_module(f"whenabouts_systems.models.{system}").released_names(model.config)
    tensors = {theirs: model.state_dict()[ours] for ours, theirs in names.items()}
    tensors["txt_position_embed.position_embeddings.weight"] = torch.zeros(3, 8)
    told = EasyDict({"nheads": 2, "max_q_l": 32, "clip_length": 2, "eval_path": None, **options})
    torch.save({"model": tensors, "optimizer": {}, "epoch": 7, "opt": argparse.Namespace(**told)}, path)
    return path


def imported(path: Path, system: str, **asked: Any) -> Imported:
    return import_checkpoint(system, path, Overrides(**{"tef": True, **asked}))


def answered(model: Any) -> Tensor:
    batch = small_batch(model.config.streams, [9, 4], [5, 3], [0, 1])
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


PAIR = {"vision": 512, "motion": 2304}


@pytest.mark.parametrize(
    ("folders", "order"),
    [
        (("../slowfast_of_clips/clip", "../slowfast_of_clips/slowfast"), ["vision", "motion"]),
        (("../features/slowfast_features", "../features/clip_features/"), ["motion", "vision"]),
    ],
)
def test_streams_lie_in_the_order_of_the_folders_that_the_file_names(
    folders: tuple[str, str], order: list[str], tmp_path: Path
) -> None:
    model = small("qd_detr", **{name: PAIR[name] for name in order})
    path = write(tmp_path / "best.ckpt", model, "qd_detr", v_feat_dirs=list(folders), ctx_mode="video_tef")
    found = import_checkpoint("qd_detr", path)
    assert (list(found.trained.model.config.streams.items()), found.guessed) == (
        [(name, PAIR[name]) for name in order],
        (),
    )
    assert found.to_json()["tef"] is True
    assert torch.equal(answered(found.trained.model), answered(model))


def test_heads_that_do_not_divide_the_width_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small("qd_detr"), "qd_detr")
    with pytest.raises(UsageError, match=r"best\.ckpt: 3 heads do not divide the width 8; give --heads"):
        imported(path, "qd_detr", heads=3)


def test_an_order_that_the_file_does_not_tell_is_guessed_or_given(tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small("qd_detr", **PAIR), "qd_detr")
    guessed = imported(path, "qd_detr")
    assert list(guessed.trained.model.config.streams.items()) == list(PAIR.items())
    assert "--stream motion=2304 --stream vision=512" in guessed.guessed[0]
    given = imported(path, "qd_detr", tef=None, streams={"motion": 2304, "vision": 512})
    assert (list(given.trained.inputs.streams), given.guessed) == (["motion", "vision"], ())
    assert given.trained.fingerprint != guessed.trained.fingerprint  # rows of the one are not the other's
    with pytest.raises(
        UsageError, match="given streams have 2826 values together, but its features have 2816"
    ):
        imported(path, "qd_detr", streams={"motion": 2304, "vision": 522})


def test_endpoint_features_are_not_taken_for_a_stream(tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small("qd_detr", vision=512), "qd_detr")
    with pytest.raises(
        UsageError, match=r"features of 514 values look like 512 with 2 temporal .*give --tef"
    ):
        imported(path, "qd_detr", tef=False)
    assert imported(path, "qd_detr").to_json()["tef"] is True


def test_an_encoder_in_a_folder_is_known_by_its_place_and_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    folder = write_clip(tmp_path / "clip")
    (tmp_path / "slowfast").mkdir()
    path = write(tmp_path / "best.ckpt", small("qd_detr", **PAIR), "qd_detr")
    encoders = {"query": "clip", "vision": "clip", "motion": "slowfast"}
    inputs = imported(path, "qd_detr", encoders=encoders).trained.inputs
    pictures = open_image_encoder("clip")
    assert inputs.query.encoder == inputs.streams["vision"].encoder == pictures.name == str(folder.resolve())
    assert inputs.streams["vision"].fingerprint == pictures.fingerprint
    assert inputs.query.fingerprint == token_fingerprint(pictures)
    assert (inputs.streams["motion"].encoder, inputs.streams["motion"].fingerprint) == ("slowfast", "")


@pytest.mark.parametrize(
    ("asked", "said"), [("moment_detr", "left over: global_rep_pos"), ("tr_detr", "lacks parameter")]
)
def test_a_checkpoint_of_another_system_is_refused_and_named(asked: str, said: str, tmp_path: Path) -> None:
    other = "qd_detr" if asked == "moment_detr" else "moment_detr"
    path = write(tmp_path / "best.ckpt", small(other), other)
    with pytest.raises(FormatError, match=f"{said}.*it looks like a checkpoint of {other}$"):
        imported(path, asked)


def test_costs_of_the_matching_and_layers_that_do_not_learn_are_imported(tmp_path: Path) -> None:
    told = {"set_cost_span": 3, "set_cost_class": 0.5, "aux_loss": False, "span_loss_coef": 7}
    config = imported(write(tmp_path / "best.ckpt", small("qd_detr"), "qd_detr", **told), "qd_detr")
    made = config.trained.model.config
    assert (made.cost_span, made.cost_giou, made.cost_label, made.weight_span) == (3.0, 1.0, 0.5, 7.0)
    assert not made.each_layer


@pytest.mark.parametrize(
    ("name", "value"),
    [("span_loss_type", "ce"), ("position_embedding", "learned"), ("pre_norm", True), ("use_txt_pos", True)],
)
def test_what_is_not_offered_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small("qd_detr"), "qd_detr", **{name: value})
    with pytest.raises(FormatError, match=f"{name}: is not supported"):
        imported(path, "qd_detr")


def test_a_head_whose_two_copies_differ_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "best.ckpt", small("eatr"), "eatr")
    told = torch.load(path, weights_only=False)
    head = "moment_span_embed.layers.0.bias"
    told["model"][f"transformer.decoder.{head}"] = told["model"][head].clone()
    torch.save({"model": told["model"]}, path)
    assert imported(path, "eatr", heads=2)
    told["model"][f"transformer.decoder.{head}"][0] += 1
    torch.save({"model": told["model"]}, path)
    with pytest.raises(FormatError, match=f"{head}' are one parameter, but have different"):
        imported(path, "eatr", heads=2)


@pytest.mark.parametrize("path", [p for s in SYSTEMS for p in detr_cases(s)], ids=lambda path: path.stem)
def test_golden_weights_are_imported(path: Path, tmp_path: Path) -> None:
    case: DetrCase = opened(path)
    tensors = {
        name.removeprefix("sd."): value for name, value in case.arrays.items() if name.startswith("sd.")
    }
    options = {**case.told["options"], "nheads": case.model.config.heads}
    torch.save({"model": tensors, "epoch": 0, "opt": options}, tmp_path / "best.ckpt")
    asked = Overrides(tef=case.model.config.tef)
    found = import_checkpoint(case.told["model"], tmp_path / "best.ckpt", asked)
    assert found.trained.inputs.clip_seconds == case.clip_seconds
    theirs = found.trained.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in case.model.state_dict().items())


@pytest.mark.parametrize(
    ("setting", "told"), [("clip_length", "clip_seconds is 0"), ("max_q_l", "max_tokens is 0")]
)
def test_a_setting_of_the_file_that_cannot_be_is_told_with_the_file(
    setting: str, told: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "best.ckpt", small("qd_detr"), "qd_detr", **{setting: 0})
    with pytest.raises(UsageError, match=rf"best\.ckpt: inputs: {told}"):
        imported(path, "qd_detr")


@pytest.mark.parametrize("places", [4_000, 60])
def test_names_of_many_layers_make_no_layers(places: int, tmp_path: Path) -> None:
    model = small("moment_detr")
    path = write(tmp_path / "best.ckpt", model, "moment_detr")
    content = torch.load(path, weights_only=False)
    named = "transformer.encoder.layers.{}.linear1.weight"
    content["model"] |= {named.format(place): torch.zeros(1) for place in range(1, places)}
    torch.save(content, path)
    made = 0

    def count(module: torch.nn.Module, name: str, parameter: object) -> None:
        nonlocal made
        made += 1

    counting = register_module_parameter_registration_hook(count)
    try:
        with pytest.raises(
            FormatError, match="far more weights" if places > 100 else "missing: .* and .* more"
        ):
            imported(path, "moment_detr")
    finally:
        counting.remove()
    assert made < 12_000


def test_a_folder_whose_settings_ask_for_more_layers_than_its_weights_is_refused_at_once(
    tmp_path: Path,
) -> None:
    found = imported(write(tmp_path / "best.ckpt", small("moment_detr"), "moment_detr"), "moment_detr")
    found.write(tmp_path / "made")
    config = tmp_path / "made" / "config.json"
    told = json.loads(config.read_text())
    told["model"]["encoder_layers"] = 1_000_000_000
    config.write_text(json.dumps(told))
    with pytest.raises(FormatError, match="far more weights"):
        Trained.from_pretrained(tmp_path / "made")
