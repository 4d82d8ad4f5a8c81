"""Import EaTR's checkpoints from lighthouse, and reproduce its program's departures from the paper."""

from __future__ import annotations

from dataclasses import replace

import torch

from whenabouts.intake.files import FormatError
from whenabouts_systems.models.eatr import Model
from whenabouts_systems.released import _detr
from whenabouts_systems.released.settings import Released, Settings

TITLE = "EaTR, imported from a checkpoint of lighthouse"
_INSIDE = "transformer.decoder."
_TWICE = ("event_span_embed.", "moment_span_embed.")
"""Heads that are in the file twice, because the decoder shares them."""


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options.

    Raises FormatError if the two copies of a head differ.
    """
    weight = released.setting("event_coef", 3.0)
    common = _detr.settings(released, "transformer.decoder.slot_atten.slots", weight_event=weight)
    tensors = released.checkpoint.tensors
    copies = [name for name in tensors if name.startswith(tuple(_INSIDE + head for head in _TWICE))]
    for name in copies:
        head = tensors.get(name.removeprefix(_INSIDE))
        if head is not None and not torch.equal(head, tensors[name]):
            raise FormatError(
                released.checkpoint.path,
                f"{name.removeprefix(_INSIDE)!r} and {name!r} are one parameter, but have different values; "
                "import the file that the program wrote",
            )
    return replace(common, unused=common.unused | frozenset(copies))


class AsReleased(Model):
    """EaTR as its program computes it: padding takes part in the sentence, the slots and the events."""

    counts_padding = True
