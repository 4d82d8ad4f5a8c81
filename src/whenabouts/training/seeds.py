"""Chance that can be continued: what a step draws depends on the seed and the step's number alone."""

from __future__ import annotations

import hashlib

import torch


def seed_weights(seed: int) -> None:
    """Let fresh weights be drawn from a seed."""
    torch.manual_seed(seed)


def seed_step(seed: int, step: int, part: int = 0) -> None:
    """Let everything that a step draws (dropout, negatives) be drawn from (seed, step).

    A training that goes on after a break draws what the unbroken one would have. `part` tells apart what
    several processes draw for their share of a step.
    """
    torch.manual_seed(_mixed(seed, step, part))


def _mixed(*numbers: int) -> int:
    """64 bits that change altogether when one of the numbers does."""
    text = " ".join(map(str, numbers)).encode()
    # PyTorch takes seeds below 2**63 everywhere.
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1
