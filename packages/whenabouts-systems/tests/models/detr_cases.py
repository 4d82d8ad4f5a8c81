"""Golden cases of the DETR family: arrays stored or drawn by the rule that a case tells, model, batch."""

from __future__ import annotations

import ast
import importlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.golden_folder import Settings, arrays_of, cases, told_inside
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from whenabouts.types import Query
from whenabouts_systems.models import new_model
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.parts.window_targets import true_windows
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryEncoding, VideoEncoding
from whenabouts_systems.released.checkpoint_file import Checkpoint
from whenabouts_systems.released.settings import Overrides, Released
from whenabouts_systems.training.labels import WindowLabels, sources_of

SYSTEMS = (
    "moment_detr",
    "qd_detr",
    "cg_detr",
    "tr_detr",
    "eatr",
    "uvcom",
)
"""The systems of the family."""
NOISY = ("tr_detr", "uvcom")
"""Whose gradients move by 2e-3 where weights move by 1e-7, as the folder's README says."""
UNUSED = (
    "txt_position_embed.",
    "txt_proj_linear.",
    "transformer.decoder.event_span_embed.",
    "transformer.decoder.moment_span_embed.",
)
"""Parameters that the programs make and never read, or have twice."""
TOLD_ELSEWHERE = (
    *("enc_layers", "dec_layers", "dim_feedforward", "hidden_dim", "num_queries", "n_input_proj"),
    *("t_feat_dim", "v_feat_dim", "v_feat_types", "num_dummies", "num_prompts", "total_prompts"),
    *("n_txt_mu", "n_visual_mu", "t2v_layers", "sent_layers", "moment_layers", "dummy_layers"),
    *("max_windows", "wd", "grad_clip", "clip_length", "max_q_l", "lr", "lr_drop", "lr_gamma", "ctx_mode"),
    *("seed", "device", "num_workers", "bsz", "eval_bsz", "n_epoch", "max_es_cnt", "eval_epoch_interval"),
    *("model_name", "dset_name", "t_feat_type", "v_feat_dirs", "t_feat_dir", "train_path", "eval_path"),
    *("eval_split_name", "results_dir", "ckpt_filename", "train_log_filename", "eval_log_filename"),
)
"""Options that tensors tell as well, those of data and steps, which each test reads itself, and of files."""
UNUSED_IN = {"uvcom": ("global_rep_token",)}
"""Those of one program, by system."""


@dataclass(frozen=True)
class DetrCase:
    """One case: what is told of it, its arrays, the model with its weights."""

    told: Mapping[str, Any]
    arrays: Mapping[str, Tensor]
    model: Any
    names: Mapping[str, str]

    @property
    def pairs(self) -> int:
        return len(self.told["sizes"]["clips"])

    @property
    def clip_seconds(self) -> float:
        return float(self.told["options"].get("clip_length", 2.0))

    @property
    def batch(self) -> Batch:
        """The training batch, with the windows and the pairs of clips that the program drew."""
        labels = {"windows": self._windows, **self._chosen(self._unlabelled.videos.mask.shape[1])}
        return replace(self._unlabelled, labels=labels)

    @cached_property
    def _unlabelled(self) -> Batch:
        read = self.inputs()
        lengths = [min(len(self.arrays[f"raw.q.{at}"]), read.max_tokens) for at in range(self.pairs)]
        clips, words = self.clips(read), read.queries([self.raw(f"raw.q.{at}") for at in range(self.pairs)])
        assert words.mask.sum(1).tolist() == lengths
        at = torch.arange(self.pairs)
        spans = torch.zeros(self.pairs, 2, dtype=torch.int64)
        return Batch(words, clips, at, spans, at[:, None] == at)

    def encoded(self) -> tuple[QueryEncoding, VideoEncoding]:
        batch = self._unlabelled
        return self.model.encode_queries(batch.queries), self.model.encode_videos(batch.videos)

    def raw(self, name: str) -> Any:
        return self.arrays[name].numpy()

    def inputs(self, *, normalise: bool = True, most: int | None = None) -> Inputs:
        """How features are made ready: as in training, or as the package's predictor does, which cuts none.

        `most`: clips, and words.
        """
        widths, options = self.told["sizes"]["v_dims"], self.told["options"]
        streams = {f"v{at}": StreamInput(width, normalise) for at, width in enumerate(widths)}
        return Inputs(
            StreamInput(self.told["sizes"]["t_dim"]),
            streams,
            clip_seconds=self.clip_seconds,
            max_clips=most or options.get("max_v_l", 75),
            max_tokens=most or options.get("max_q_l", 32),
            long_videos="cut",
        )

    def clips(self, read: Inputs) -> ClipBatch:
        """Each video's sources, all cut to the shortest of them, as the programs cut them."""
        sources = range(len(self.told["sizes"]["v_dims"]))
        videos = []
        for at in range(self.pairs):
            rows = {f"v{source}": self.raw(f"raw.v{source}.{at}") for source in sources}
            shortest = min(map(len, rows.values()))
            videos.append({name: values[:shortest] for name, values in rows.items()})
        return read.clips(videos)

    @cached_property
    def _windows(self) -> Tensor:
        """True windows in clips (P, W, 2): those that the program read, else those of the annotations.

        The programs draw `max_windows` of a query's windows. Where the case does not say which, the choice is
        taken that gives the stored losses.
        """
        most = self.told["options"].get("max_windows", 5)
        windows, choices = [], []
        for at, note in enumerate(self.told["annotations"]):
            spans = self.arrays.get(f"target.span_labels.{at}.spans")
            if spans is None:
                windows.append(torch.tensor(note["relevant_windows"]) / self.clip_seconds)
            else:
                half, clips = spans[:, 1] / 2, self._unlabelled.videos.mask[at].sum()
                windows.append(torch.stack([spans[:, 0] - half, spans[:, 0] + half], -1) * clips)
            choices.append(list(itertools.combinations(range(len(windows[-1])), min(most, len(windows[-1])))))
        if all(len(each) == 1 for each in choices):
            return _padded(windows)
        drawn = (
            _padded([each[list(rows)] for each, rows in zip(windows, chosen, strict=True)])
            for chosen in itertools.product(*choices)
        )
        fitting = next((each for each in drawn if self._has_released_losses(each)), None)
        assert fitting is not None, f"no {most} of the annotated windows give the released losses"
        return fitting

    @torch.no_grad()
    def _has_released_losses(self, windows: Tensor) -> bool:
        queries, videos = self.encoded()
        layers = self.model.detect(queries, videos).layers
        truth = true_windows(replace(self._unlabelled, labels={"windows": windows}), videos.mask.sum(1))
        weights = self.told["told"]["loss_weights"]
        return all(
            torch.allclose(value, self.arrays[f"loss.loss_{name}"] * weights[f"loss_{name}"], atol=1e-4)
            for name, value in self.model.losses_of_layers(layers, truth).items()
        )

    @property
    def tells_drawn_clips(self) -> bool:
        """A case of real widths does not."""
        return "target.saliency_all_labels" in self.arrays

    def _chosen(self, clips: int) -> Mapping[str, Tensor]:
        """What the program drew of the clips, else what the annotations tell of them."""
        notes = self.told["annotations"]
        if not self.tells_drawn_clips:
            at, asked = (
                np.arange(self.pairs),
                [Query(str(note["qid"]), note["query"], note) for note in notes],
            )
            no_borders = np.zeros((self.pairs, 2), np.float32)
            told = WindowLabels(at, at, no_borders, asked, [note["vid"] for note in notes]).of(at, clips)
            return {name: value for name, value in told.items() if name != "windows"}
        chosen = ("target.saliency_pos_labels", "target.saliency_neg_labels")
        relevant = self.arrays.get("target.src_pos_mask")
        return {
            **({} if relevant is None else {"relevant_clips": relevant.bool()}),
            "saliency": self.arrays["target.saliency_all_labels"],
            "saliency_pairs": torch.stack([self.arrays[name] for name in chosen], 1),
            "source": sources_of([note["vid"] for note in notes]),
        }


def _padded(windows: list[Tensor]) -> Tensor:
    return pad_sequence(windows, batch_first=True, padding_value=torch.nan)


def detr_cases(system: str) -> list[Path]:
    return cases(system, "*.npz")


@cache
def opened(path: Path) -> DetrCase:
    """A case with its model, of the sizes that its tensors have and the options that it tells."""
    told, arrays = told_inside(path), arrays_of(path)
    arrays.update(_drawn(literal(told.get("drawn", {}))))
    tensors = {name[3:]: value for name, value in arrays.items() if name.startswith("sd.")}
    system: Any = importlib.import_module(f"whenabouts_systems.models.{told['model']}")
    importer: Any = importlib.import_module(f"whenabouts_systems.released.{told['model']}")
    streams = {f"v{at}": width for at, width in enumerate(told["sizes"]["v_dims"])}
    tef = tensors["input_vid_proj.0.net.1.weight"].shape[1] > sum(streams.values())
    released = Released(Checkpoint(path, tensors, told["options"]), {}, Overrides(tef=tef, streams=streams))
    released._settings = options = Settings(told["options"])
    config = system.Config(**{**importer.settings(released).config, "streams": streams, "as_released": True})
    options.refuse_unread(*TOLD_ELSEWHERE)
    model = new_model(told["model"], config).eval()
    names = system.released_names(config)
    model.load_state_dict({ours: tensors[theirs] for ours, theirs in names.items()})
    return DetrCase(told, arrays, model, names)


def _drawn(rules: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensor = float32(offset + scale * (2 u - 1)), u = default_rng(seed).random(shape)."""
    return {
        name: torch.from_numpy(
            np.float32(
                rule["offset"]
                + rule["scale"] * (2 * np.random.default_rng(rule["seed"]).random(rule["shape"]) - 1)
            )
        )
        for name, rule in rules.items()
    }


def literal(value: Any) -> Any:
    """What a case tells; some cases tell it as a text."""
    return ast.literal_eval(value) if isinstance(value, str) else value
