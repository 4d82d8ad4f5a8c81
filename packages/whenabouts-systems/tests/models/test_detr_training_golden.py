"""The DETR family's training steps and evaluation against what the released programs compute."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_folder import golden_folder
from tests.models.detr_cases import NOISY, SYSTEMS, DetrCase, detr_cases, opened

from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_systems.training.experiment import TrainingSettings
from whenabouts_systems.training.optimizer import new_optimizer

CASES = [path for system in SYSTEMS for path in detr_cases(system)]
_DRAWS = 8
"""Weights moved by 1e-7, on which training may take the other side of a kink of the loss.

In a case of EaTR the step of the stored weights has one so near that either side is right.
"""
_GRADES = {"Fair": 2, "Good": 3, "VeryGood": 4}
_NO_GRADIENT = ("in_proj_bias", "key.bias")
"""A bias of keys changes no attention: its gradient is noise, and AdamW makes whole steps of that."""


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> DetrCase:
    return opened(request.param)


def test_there_are_cases() -> None:
    if not CASES:
        pytest.skip(f"{golden_folder()} has none of {', '.join(SYSTEMS)}")


def test_training_steps_are_the_released_ones(case: DetrCase) -> None:
    if "optim.lr_used" not in case.arrays:
        pytest.skip("a case of real widths makes no steps")
    faults = []
    for draw in range(1 + _DRAWS):
        if (fault := first_difference(case, draw)) is None:
            return
        faults.append(fault)
    raise AssertionError(faults)


def first_difference(case: DetrCase, draw: int) -> str | None:
    """What is not as released in the steps from weights of that draw (0: as they are stored)."""
    options, model, batch = case.told["options"], deepcopy(case.model), case.batch
    if draw:
        moved(model.parameters(), draw)
    settings = TrainingSettings(
        optimizer="adamw", weight_decay=options.get("wd", 1e-4), max_norm=options.get("grad_clip", 0.1)
    )
    optimizer = new_optimizer(settings, model)
    within = 5e-3 if case.told["model"] in NOISY else 1e-3
    rates = case.arrays["optim.lr_used"].tolist()
    for step, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        total = torch.stack(list(model.loss(batch).values())).sum()
        total.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_norm)
        found = {"loss_total": (total, 1e-4), "grad_norm": (norm, within)}
        for name, (value, close) in found.items():
            stored = case.arrays[f"optim.{name}"][step].item()
            if value.item() != pytest.approx(stored, rel=close):
                return f"step {step}: {name} {value.item()}, released {stored}"
        optimizer.step()
    lengths = case.told["told"]["optim_after_l2"]
    for name, parameter in model.named_parameters():
        theirs = case.names[name]
        length = lengths[theirs if theirs in lengths else f"transformer.decoder.{theirs}"]
        loose = sum(rates) if theirs.endswith(_NO_GRADIENT) or name.endswith(_NO_GRADIENT) else 0.0
        if parameter.norm().item() != pytest.approx(length, rel=2e-4, abs=max(1e-5, loose)):
            return f"{name} has length {parameter.norm().item()}, released {length}"
    return None


@torch.no_grad()
def moved(weights: Iterable[torch.Tensor], seed: int) -> None:
    """Each weight times 1 + 1e-7 * normal noise."""
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        weight.mul_(1 + 1e-7 * torch.randn(weight.shape, generator=generator))


@torch.no_grad()
def test_saliency_is_that_of_the_released_evaluation(case: DetrCase) -> None:
    """Which stores it in half precision, of the clips of each video."""
    queries, videos = case.encoded()
    curves = case.model.detect(queries, videos).saliency
    for at, stored in enumerate(case.told["told"]["post_saliency"]):
        own = curves[at][videos.mask[at]]
        torch.testing.assert_close(own, torch.tensor(stored), atol=1e-4, rtol=2**-10)


def test_metrics_of_the_released_windows_are_the_told_ones(case: DetrCase, tmp_path: Path) -> None:
    notes, told = case.told["annotations"], case.told["told"]
    assert [note["qid"] for note in notes] == told["post_qids"]
    answers = [
        {
            "qid": note["qid"],
            "vid": note["vid"],
            "pred_relevant_windows": case.arrays["post.windows"][at].tolist(),
            "pred_saliency_scores": told["post_saliency"][at],
        }
        for at, note in enumerate(notes)
    ]
    truth, run = written(tmp_path / "truth.jsonl", notes), written(tmp_path / "run.jsonl", answers)
    numbers = dict(numbers_by_our_names(told["metrics"]))
    means = evaluate(truth, run, list(numbers), protocol="qvh", run_format="qvhighlights").means()
    assert {name: 100 * means[name] for name in numbers} == pytest.approx(numbers, abs=0.006)


def written(path: Path, lines: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def numbers_by_our_names(told: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Of moments (of all lengths, or of those of one) at each threshold, and of clips by least grade."""
    for part, numbers in told.items():
        if part.startswith("HL-min-"):
            grade = _GRADES[part.removeprefix("HL-min-")]
            yield f"HL Hit@1,saliency={grade}", numbers["HL-Hit1"]
            yield f"HL mAP,saliency={grade}", numbers["HL-mAP"]
        elif part != "brief":
            length = "" if part == "full" else f",length={part}"
            for iou, value in numbers["MR-mAP"].items():
                yield ("mAP" if iou == "average" else f"mAP,IoU={iou}") + length, value
            for iou, value in numbers["MR-R1"].items() if part == "full" else ():
                yield f"R@1,IoU={iou}", value
