"""MMN against what its authors' program computes: every case file of `mmn/` in the golden folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.golden_folder import Settings
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from whenabouts.overlap import suppress
from whenabouts_systems.models.mmn import (
    Config,
    Encoded,
    Model,
    released_names,
    span_score,
    truth_of,
)
from whenabouts_systems.models.parts.moment_map import _weights, cells_of, map_areas
from whenabouts_systems.models.parts.mutual_matching import Keep, allowed_sentences
from whenabouts_systems.models.parts.text_encoder import Words, mean_of_words
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SpanScores, VideoEncoding

NAMES = ("dataset", "num_pre_clips", "num_clips", "text_dim", "bert_layers", "vocab", "num_sentence", "nms")
"""Settings that are read elsewhere, or told twice."""
OF_BERT = (
    *("vocab_size", "dim", "n_heads", "n_layers", "hidden_dim", "max_position_embeddings"),
    *("activation", "dropout", "attention_dropout", "pad_token_id"),
)
COUNTS = {"charades": (16, (15,)), "activitynet": (64, (15, 8, 8)), "tacos": (128, (15, 8, 8, 8))}
VALID = {"charades": 136, "activitynet": 1104, "tacos": 2548}


@pytest.fixture(scope="module")
def cases(golden: Path) -> list[Case]:
    pytest.importorskip("transformers")
    paths = sorted((golden / "mmn").glob("model_*.npz"))
    if not paths:
        pytest.skip(f"{golden / 'mmn'} has no model_*.npz")
    return [Case.read(path) for path in paths]


@dataclass(frozen=True)
class Case:
    """One file: a small MMN with random weights, its inputs, and all that it computed."""

    path: Path
    config: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @classmethod
    def read(cls, path: Path) -> Case:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        return cls(path, json.loads(str(arrays.pop("config"))), arrays)

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(np.asarray(self.arrays[name]))

    def rows(self, name: str) -> Tensor:
        """What is kept video by video, one after the other."""
        return torch.cat([self.tensor(f"{name}.{video}") for video in range(len(self))])

    def padded(self, name: str) -> Tensor:
        """The same of sentences, which a video may pad to the longest of its own."""
        rows = [row for video in range(len(self)) for row in self.tensor(f"{name}.{video}")]
        return pad_sequence(rows, batch_first=True)

    def __len__(self) -> int:
        return len(self.config["num_sentence"])

    def model(self, **settings: Any) -> Model:
        told = Settings(self.config)
        bert = Settings(told["distilbert"])
        bert.refuse_unread(*OF_BERT)
        activation = bert.get("activation", "gelu")
        assert activation == "gelu", f"activation {activation} is not implemented"
        model = Model(
            Config(
                streams={"video": told["feat_in"]},
                text_encoder="as in the file",
                text={name: bert[name] for name in ("vocab_size", "dim", "n_heads", "n_layers", "hidden_dim")}
                | {"max_position_embeddings": bert["max_position_embeddings"]},
                hidden=told["feat_hidden"],
                map_hidden=told["pred_hidden"],
                joint=told["joint"],
                clips_per_cell=told["pool_kernel"],
                pooling_counts=tuple(told["pooling_counts"]),
                map=told["feat2d"],
                map_kernel=told["k"],
                map_layers=told["layers"],
                lowest_iou=told["min_iou"],
                highest_iou=told["max_iou"],
                positives=told["topk"],
                negative_iou=told["neg_iou"],
                same_iou=told["sent_removal_iou"],
                temperature_moments=told["tau_v"],
                temperature_sentences=told["tau_s"],
                margin=told["margin"],
                lambda_contrast=told["cw"],
                score_power=told["pow"],
                as_released=True,
                **settings,
            )
        )
        told.refuse_unread(*NAMES)
        names = released_names(model.config)
        model.load_state_dict({ours: self.tensor(f"param.{theirs}") for ours, theirs in names.items()})
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        return model.eval()

    def batch(self, epoch: int = 0) -> Batch:
        feats = self.tensor("in.feats")
        lengths = self.rows("in.wordlens")
        ids = self.padded("in.queries")
        video_of = torch.repeat_interleave(torch.arange(len(self)), torch.tensor(self.config["num_sentence"]))
        moments = self.rows("in.moments").double() / self.tensor("in.duration")[video_of][:, None]
        return Batch(
            QueryBatch(ids, torch.arange(ids.shape[1]) < lengths[:, None]),
            ClipBatch({"video": feats}, torch.ones(feats.shape[:2], dtype=torch.bool)),
            video_of,
            torch.zeros(len(video_of), 2, dtype=torch.int64),
            video_of[:, None] == torch.arange(len(self)),
            epoch=epoch,
            labels={"moments": moments},
        )

    def cells(self, name: str) -> Tensor:
        """(S, P) or (V, P) of maps (…, N, N), at the cells in our order."""
        found = self.rows(name) if f"{name}.0" in self.arrays else self.tensor(name)
        ours = cells_of(tuple(self.config["pooling_counts"]), self.config["num_clips"])
        return found[..., ours.first, ours.last]


def near(found: Tensor, expected: Tensor, within: float = 1e-5) -> None:
    torch.testing.assert_close(found.detach().to(expected.dtype), expected, rtol=0, atol=within)


def encoded(model: Model, case: Case) -> Encoded:
    with torch.no_grad():
        return model.encoded(case.batch().videos)


def test_the_map_has_the_cells_of_the_program(cases: list[Case], golden: Path) -> None:
    for case in cases:
        cells = cells_of(tuple(case.config["pooling_counts"]), case.config["num_clips"])
        ours = torch.zeros_like(case.tensor("mask2d"))
        ours[cells.first, cells.last] = True
        assert torch.equal(ours, case.tensor("mask2d")), case.path


def utilities(golden: Path) -> list[Path]:
    paths = sorted((golden / "mmn").glob("data_utils*.npz"))
    if not paths:
        pytest.skip(f"{golden / 'mmn'} has no data_utils*.npz")
    return paths


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_the_maps_of_the_data_sets_have_136_1104_and_2548_cells(name: str, golden: Path) -> None:
    clips, counts = COUNTS[name]
    cells = cells_of(counts, clips)
    for path in utilities(golden):
        with np.load(path) as file:
            if f"mask2d.{name}" not in file:
                continue
            bits = np.unpackbits(file[f"mask2d.{name}"])[: clips * clips].reshape(clips, clips).astype(bool)
            assert int(file[f"mask2d.{name}.valid"]) == len(cells) == VALID[name]
        assert bits[cells.first, cells.last].all()
        assert bits.sum() == len(cells)


def test_clips_and_map_features_are_those_of_the_program(cases: list[Case]) -> None:
    for case in cases:
        model = case.model()
        with torch.no_grad():
            clips, mask = model.clips(case.batch().videos)
            near(clips.transpose(1, 2), case.tensor("feats1d"))
            near(model.map(clips).transpose(1, 2), case.cells("map2d_pool"))
        assert mask.all()


def test_places_are_divided_by_what_the_program_divides_by(cases: list[Case]) -> None:
    for case in cases:
        told = case.config
        counts, layers = tuple(told["pooling_counts"]), told["layers"]
        areas = map_areas(counts, told["num_clips"], told["k"] // 2, layers, True)
        present = torch.ones(1, len(areas[0].places), dtype=torch.bool)
        for layer in range(layers):
            weight = _weights(present, areas[layer], areas[layer + 1], told["k"])
            expected = case.tensor(f"conv_mask_weight.{layer}")
            near(weight[0].view_as(expected), expected, 1e-6)
            present = weight > 0


@pytest.mark.parametrize("whole", [True, False])
def test_joint_features_of_cells_are_those_of_the_program(cases: list[Case], whole: bool) -> None:
    for case in cases:
        model = case.model()
        model.convolution.whole_square = whole
        with torch.no_grad():
            found = encoded(model, case)
            for name, ours in (("map2d_contrastive", found.contrast), ("map2d_iou", found.iou)):
                theirs = case.cells(f"joint.{name}").transpose(1, 2)
                near(ours, torch.nn.functional.normalize(theirs, dim=-1))


def test_sentences_are_those_of_the_program(cases: list[Case]) -> None:
    for case in cases:
        model, queries = case.model(), case.batch().queries
        with torch.no_grad():
            hidden = Words.forward(model.text, queries)
            near(hidden[queries.mask], case.padded("text.bert_hidden")[queries.mask])
            pooled = mean_of_words(hidden, queries.mask)
            near(pooled, case.rows("text.pooled"))
            near(model.text.norm(pooled), case.rows("text.layernormed"))
            made = model.encode_queries(queries)
        for ours, name in ((made.search["moments"], "sent_contrastive"), (made.parts["iou"], "sent_iou")):
            near(ours, torch.nn.functional.normalize(case.rows(f"joint.{name}"), dim=-1))


def spans_of(case: Case) -> SpanScores:
    """Every sentence with its own video."""
    model, batch = case.model(), case.batch()
    with torch.no_grad():
        videos: VideoEncoding = model.encode_videos(batch.videos)
        return model.score_spans(model.encode_queries(batch.queries), videos.take(batch.video_of))


def test_moments_score_as_in_the_program(cases: list[Case]) -> None:
    for case in cases:
        scores = spans_of(case)
        assert scores.spans is not None
        near(scores.spans.exp(), case.rows("final_scores"))
        first_of = np.cumsum([0, *case.config["num_sentence"]])
        clips = case.config["num_clips"]
        for name in (name for name in case.arrays if name.startswith("cand_scores.")):
            video, sentence = map(int, name.split(".")[1:])
            spans = scores.spans[first_of[video] + sentence]
            near(spans[spans.isfinite()].exp(), case.tensor(name))
            first, last = spans.isfinite().nonzero().T
            seconds = torch.stack([first, last + 1], 1) * float(case.arrays["in.duration"][video]) / clips
            near(seconds, case.tensor(f"cand_moments.{video}.{sentence}"), 1e-4)


def test_cosines_and_overlaps_are_those_of_the_program(cases: list[Case]) -> None:
    for case in cases:
        model, batch = case.model(), case.batch()
        with torch.no_grad():
            queries, videos = model.encode_queries(batch.queries), model.encoded(batch.videos)
            own = batch.video_of
            contrast = torch.einsum("sd,spd->sp", queries.search["moments"], videos.contrast[own])
            overlap = torch.einsum("sd,spd->sp", queries.parts["iou"], videos.iou[own])
        near(contrast, case.cells("contrastive_scores"))
        near((10 * overlap).sigmoid(), case.cells("iou_scores"))


def test_moments_of_pools_score_as_in_the_program(golden: Path) -> None:
    """From the joint features of `mvmr_eval`; the recall from these scores is a test of the evaluation."""
    paths = sorted((golden / "mvmr_eval").glob("feature_level_*.npz"))
    if not paths:
        pytest.skip(f"{golden / 'mvmr_eval'} has no feature_level_*.npz")
    for path in paths:
        with np.load(path) as file:
            pool_scores(file)


def pool_scores(file: Mapping[str, NDArray[Any]]) -> None:
    """Every kept sentence with the cells of the videos of its pool."""
    told, kept, removed = (json.loads(str(file[name])) for name in ("config", "sample_indices", "removed"))
    mask = torch.from_numpy(file["mask2d"])

    def unit(name: str) -> Tensor:
        return torch.nn.functional.normalize(torch.from_numpy(file[name]), dim=1)

    maps = {name: unit(f"in.map2d_{name}")[:, :, mask] for name in ("contrastive", "iou")}
    for video in range(len(file["duration"])):
        used = [at for at in range(len(file[f"in.sent_iou.{video}"])) if at not in removed[str(video)]]
        assert len(used) == len(kept[str(video)]) == len(file[f"confidence.{video}"])
        cosines = {
            name: torch.stack(
                [
                    torch.einsum("d,pdc->pc", unit(f"in.sent_{name}.{video}")[at], cells[pool])
                    for at, pool in zip(used, kept[str(video)], strict=True)
                ]
            )
            for name, cells in maps.items()
        }
        expected = {
            name: torch.from_numpy(file[f"{name}_scores.{video}"])[..., mask]
            for name in ("contrastive", "iou")
        }
        near(cosines["contrastive"], expected["contrastive"])
        near((10 * cosines["iou"]).sigmoid(), expected["iou"])
        found = span_score(cosines["contrastive"], cosines["iou"], told["pow"]).exp()
        near(found, torch.from_numpy(file[f"confidence.{video}"]))


def test_losses_and_gradients_are_those_of_the_program(cases: list[Case]) -> None:
    for case in cases:
        compare_losses(case, case.model().double(), "evalmode")


def test_losses_and_gradients_are_those_of_a_training_step_of_the_program(cases: list[Case]) -> None:
    for case in cases:
        model = case.model().double().train()
        compare_losses(case, model, "trainmode")
        for layer, norm in enumerate(model.convolution.norms):
            assert isinstance(norm, torch.nn.BatchNorm1d)
            assert norm.running_mean is not None
            assert norm.running_var is not None
            near(norm.running_mean, case.tensor(f"trainmode.running_mean_after.{layer}"))
            near(norm.running_var, case.tensor(f"trainmode.running_var_after.{layer}"))


def compare_losses(case: Case, model: Model, mode: str) -> None:
    """In float64: sums of float32 depend on the number of threads, by more than the tolerance."""
    batch = case.batch()
    streams = {name: rows.double() for name, rows in batch.videos.streams.items()}
    batch = replace(batch, videos=replace(batch.videos, streams=streams))
    videos = model.encoded(batch.videos)
    # The last bit of two cells' IoU may decide which is a positive: that of the file is taken.
    truth = replace(truth_of(batch, videos), iou=case.cells("in.iou2d"))
    losses = model.terms(batch, model.encode_queries(batch.queries), videos, truth, Keep())
    weight = model.config.lambda_contrast
    near(losses["iou"], case.tensor(f"{mode}.loss_iou"), 1e-4)
    near(losses["moments"] / weight, case.tensor(f"{mode}.loss_vid"), 1e-4)
    near(losses["sentences"] / weight, case.tensor(f"{mode}.loss_sent"), 1e-4)
    total = torch.stack(list(losses.values())).sum()
    near(total, case.tensor(f"{mode}.total"), 1e-4)
    names = {theirs: ours for ours, theirs in released_names(model.config).items()}
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(total, list(parameters.values()))
    gradients = dict(zip(parameters, found, strict=True))
    told = [name for name in case.arrays if name.startswith(f"{mode}.grad.")]
    assert told
    for name in told:
        expected = case.tensor(name)
        ours = gradients[names[name.removeprefix(f"{mode}.grad.")]].view(expected.shape)
        near(ours, expected, 1e-4 * float(expected.abs().max()) + 1e-7)
    length = torch.nn.utils.get_total_norm(list(gradients.values()))
    assert float(length) == pytest.approx(float(case.tensor(f"{mode}.grad_norm")), rel=1e-4)


def test_sentences_of_one_video_are_left_out_where_the_program_does(cases: list[Case]) -> None:
    for case in cases:
        model, batch = case.model(), case.batch()
        truth = truth_of(batch, encoded(model, case))
        near(truth.iou, case.cells("in.iou2d"))
        there = allowed_sentences(truth, model.rule, Keep(), len(batch))
        removed = case.tensor("sent_removed_same_video").bool()
        at = torch.arange(len(batch))
        assert removed[at, at].all()
        removed[at, at] = False
        assert torch.equal(there, ~removed)


def test_overlaps_with_the_map_are_those_of_the_program(golden: Path) -> None:
    for path in utilities(golden):
        with np.load(path) as file:
            numbers = [name.split(".")[1] for name in file.files if name.endswith(".moments")]
            assert numbers
            for number in numbers:
                clips = int(file[f"iou2d.{number}.num_clips"])
                cells = cells_of((clips - 1,), clips)
                moments = torch.from_numpy(file[f"iou2d.{number}.moments"] / file[f"iou2d.{number}.duration"])
                found = cells.overlaps(moments, torch.full((len(moments),), clips))
                expected = torch.from_numpy(file[f"iou2d.{number}.out"])[:, cells.first, cells.last]
                near(found, expected)


def test_the_moments_that_survive_suppression_are_those_of_the_program(cases: list[Case]) -> None:
    compared = 0
    told = sum(name.startswith("nms_moments.") for case in cases for name in case.arrays)
    for case in cases:
        scores = spans_of(case)
        assert scores.spans is not None
        clips = case.config["num_clips"]
        first_of = np.cumsum([0, *case.config["num_sentence"]])
        for video, count in enumerate(case.config["num_sentence"]):
            for sentence in range(count):
                name = f"nms_moments.{video}.{sentence}"
                if name not in case.arrays:
                    continue
                spans = scores.spans[first_of[video] + sentence]
                first, last = (at.numpy() for at in spans.isfinite().nonzero().T)
                # In single precision, as the program: many cells overlap by 0.5 to the last bit.
                step = np.float32(case.arrays["in.duration"][video])
                start, end = (at.astype(np.float32) * step / np.float32(clips) for at in (first, last + 1))
                values, group = spans[first, last].double().numpy(), np.zeros(len(first), np.int64)
                kept = suppress(group, start, end, values, case.config["nms"], over="hull")
                found = np.stack([start[kept], end[kept]], 1)
                np.testing.assert_allclose(found, case.arrays[name], atol=1e-5)
                compared += 1
    assert compared == told
