"""Checkpoints of MMN's program are imported whole, or refused, and score as golden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.mmn import Config, Model, released_names
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released.importing import Imported, import_checkpoint
from whenabouts_systems.released.settings import Overrides

pytest.importorskip("transformers")

SIZES = {"vocab_size": 30, "dim": 12, "n_heads": 2, "n_layers": 2, "hidden_dim": 24}


def small(**settings: Any) -> Model:
    """An MMN of the shape that Charades-STA's has, but narrow."""
    torch.manual_seed(0)
    text = {**SIZES, "max_position_embeddings": 24}
    config = Config({"video": 10}, text_encoder="any", text=text, hidden=8, joint=6, **settings)
    return Model(config).eval()


def parameters(model: Model) -> dict[str, Tensor]:
    """Its weights by the released names."""
    return {theirs: model.state_dict()[ours] for ours, theirs in released_names(model.config).items()}


def write(path: Path, tensors: dict[str, Tensor]) -> Path:
    torch.save({"model": tensors, "epoch": 3}, path)
    return path


def imported(path: Path, **asked: Any) -> Imported:
    return import_checkpoint("mmn", path, Overrides(**{"heads": 2, "dataset": "charades", **asked}))


def batch() -> tuple[QueryBatch, ClipBatch]:
    ids = torch.randint(0, 30, (3, 5), generator=torch.Generator().manual_seed(1))
    feats = torch.randn(3, 32, 10, generator=torch.Generator().manual_seed(2))
    return QueryBatch(ids, torch.ones(3, 5, dtype=torch.bool)), ClipBatch(
        {"video": feats}, torch.ones(3, 32, dtype=torch.bool)
    )


def scores(model: Any) -> Tensor:
    queries, videos = batch()
    with torch.no_grad():
        spans: Tensor = model.score_spans(model.encode_queries(queries), model.encode_videos(videos)).spans
    return spans


def test_an_imported_checkpoint_scores_as_the_system_it_was_written_from(tmp_path: Path) -> None:
    model = small(clips_per_cell=2, pooling_counts=(15,))
    found = imported(write(tmp_path / "best.pth", parameters(model)))
    assert torch.equal(scores(found.trained.model), scores(model))
    assert found.trained.model.config.pooling_counts == (15,)
    assert found.guessed == ()
    assert found.trained.labels == "inclusive"
    assert found.trained.decoding.spans_before_nms == 136


def test_clips_and_map_of_two_widths_are_told_by_the_tensors(tmp_path: Path) -> None:
    model = small(clips_per_cell=2, pooling_counts=(15,), map_hidden=5, map_layers=2)
    found = imported(write(tmp_path / "best.pth", parameters(model)))
    assert (found.trained.model.config.hidden, found.trained.model.config.map_hidden) == (8, 5)
    assert torch.equal(scores(found.trained.model), scores(model))


def test_what_was_imported_is_kept_and_opened_without_the_text_encoders_own_files(tmp_path: Path) -> None:
    model = small(clips_per_cell=2, pooling_counts=(15,))
    imported(write(tmp_path / "best.pth", parameters(model))).write(tmp_path / "made")
    again = Trained.from_pretrained(tmp_path / "made")
    assert torch.equal(scores(again.model), scores(model))
    assert again.inputs.tokenizer == "distilbert-base-uncased"
    assert again.inputs.cells_of(500) == 16


@pytest.mark.parametrize(
    ("dataset", "kernel", "cells"), [("charades", 5, 136), ("activitynet", 9, 1104), ("tacos", 5, 2548)]
)
def test_a_data_set_tells_the_map(tmp_path: Path, dataset: str, kernel: int, cells: int) -> None:
    model = small(map_kernel=kernel, map_layers=2)
    found = imported(write(tmp_path / "best.pth", parameters(model)), dataset=dataset)
    assert found.trained.decoding.spans_before_nms == cells


@pytest.mark.parametrize(
    ("file", "kernel", "dataset"),
    [("best.pth", 9, "activitynet"), ("pool_tacos.pth", 5, "tacos"), ("best.pth", 5, "charades")],
)
def test_a_data_set_that_is_not_named_is_guessed_and_told(
    tmp_path: Path, file: str, kernel: int, dataset: str
) -> None:
    model = small(map_kernel=kernel, map_layers=2)
    found = imported(write(tmp_path / file, parameters(model)), dataset="")
    assert found.guessed == (f"the data set: {dataset} (--dataset)",)


def test_heads_that_are_not_told_are_guessed_and_told(tmp_path: Path) -> None:
    found = imported(write(tmp_path / "best.pth", parameters(small(map_layers=2))), heads=None)
    assert found.guessed == ("heads of attention: 1, 64 values each (--heads)",)


def test_the_map_of_convolutions_tells_its_cells(tmp_path: Path) -> None:
    model = small(map="conv", pooling_counts=(7, 4), map_layers=2, clips_per_cell=2)
    found = imported(write(tmp_path / "best.pth", parameters(model)))
    assert found.trained.model.config.pooling_counts == (7, 4)
    assert torch.equal(scores(found.trained.model), scores(model))


def test_a_table_of_positions_of_older_libraries_is_left_out(tmp_path: Path) -> None:
    tensors = parameters(small(map_layers=2))
    tensors["text_encoder.bert.embeddings.position_ids"] = torch.arange(24)[None]
    imported(write(tmp_path / "best.pth", tensors))


def test_a_parameter_that_is_missing_is_named(tmp_path: Path) -> None:
    tensors = parameters(small(map_layers=2))
    del tensors["text_encoder.fc_out2.bias"]
    with pytest.raises(FormatError, match=r"missing: text_encoder\.fc_out2\.bias"):
        imported(write(tmp_path / "best.pth", tensors))


def test_a_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"lacks parameter 'proposal_conv\.convs\.0\.weight'"):
        imported(write(tmp_path / "best.pth", {"query_encoder.weight": torch.ones(2)}), dataset="")


def test_an_unknown_data_set_and_stream_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "best.pth", parameters(small(map_layers=2)))
    with pytest.raises(UsageError, match="'didemo': unknown; accepted: charades, activitynet, tacos"):
        imported(path, dataset="didemo")
    with pytest.raises(UsageError, match="encoder of 'sub'"):
        imported(path, encoders={"sub": "bert"})
    with pytest.raises(UsageError, match="MMN has no temporal endpoint features; leave out --tef"):
        imported(path, tef=True)


def test_golden_weights_are_imported_under_their_names(golden: Path, tmp_path: Path) -> None:
    paths = sorted((golden / "mmn").glob("model_*.npz"))
    if not paths:
        pytest.skip(f"{golden / 'mmn'} has no model_*.npz")
    for path in paths:
        with np.load(path) as file:
            told = json.loads(str(file["config"]))
            tensors = {
                name.removeprefix("param."): torch.from_numpy(file[name])
                for name in file.files
                if name.startswith("param.")
            }
        heads = told["distilbert"]["n_heads"]
        found = imported(write(tmp_path / path.stem, tensors), dataset=told["dataset"], heads=heads)
        config = found.trained.model.config
        assert (config.map_kernel, config.map_layers) == (told["k"], told["layers"])
        assert (config.hidden, config.map_hidden, config.joint, config.map) == (
            told["feat_hidden"],
            told["pred_hidden"],
            told["joint"],
            told["feat2d"],
        )
        weights = found.trained.model.state_dict()
        names = released_names(config)
        assert all(torch.equal(weights[ours], tensors[theirs]) for ours, theirs in names.items())
