"""Cluster the rows of a sequence softly, and walk at random between rows and clusters (UVCOM).

Shapes: P pairs, T rows, K clusters, D width. `mask` (P, T) bool: rows that take part; None: all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SPREAD = 1.2
_SHARPNESS = 5.0
_STAY = 0.5
_TINY = 1e-9


def clustered(centres: Tensor, rows: Tensor, mask: Tensor | None, rounds: int) -> Tensor:
    """(P, K, D) centres after some rounds of expectation and maximisation, from `centres` (P, K, D).

    The shares of a row (P, T, D) in centres follow a Gaussian of the distance of their directions; a centre
    becomes the mean of its rows, weighted by these shares (section 3.2).
    """
    directions = _unit(rows)
    for _ in range(rounds):
        unit = _unit(centres)
        products = unit @ directions.transpose(1, 2)
        lengths = unit.square().sum(-1)[..., None] + directions.square().sum(-1)[:, None]
        distances = (lengths - 2 * products).clamp(min=0)
        shares = _of_rows((-0.5 * distances / _SPREAD**2).softmax(1), mask)
        centres = _shared(shares) @ rows
    return centres


def walked(rows: Tensor, centres: Tensor, mask: Tensor | None, *, whole: bool) -> Tensor:
    """(P, T, D) rows after a random walk between them and centres (P, K, D).

    With the shares z of rows x in centres y, the affinity A of rows by these shares, and w = 0.5, the result
    is (1 - w) (I - w^2 A)^-1 (x + w z^T y). With `whole` False, I - w^2 A replaces its inverse, as in
    lighthouse: it kept the order of arguments of the authors' solver, which PyTorch has changed.
    """
    shares = _of_rows((_SHARPNESS * (_unit(centres) @ _unit(rows).transpose(1, 2))).softmax(1), mask)
    affinity = shares.transpose(1, 2) @ _shared(shares)
    steps = torch.eye(rows.shape[1], device=rows.device, dtype=rows.dtype) - _STAY**2 * affinity
    mixed = _STAY * (shares.transpose(1, 2) @ centres) + rows
    end: Tensor = torch.linalg.solve(steps, mixed) if whole else steps @ mixed
    return end * (1 - _STAY)


def _unit(rows: Tensor) -> Tensor:
    unit: Tensor = rows / (rows.norm(dim=-1, keepdim=True) + _TINY)
    return unit


def _of_rows(shares: Tensor, mask: Tensor | None) -> Tensor:
    """(P, K, T) shares, zero for rows that do not take part."""
    return shares if mask is None else shares * mask[:, None]


def _shared(shares: Tensor) -> Tensor:
    """(P, K, T) shares, normalised so that those of each centre add up to 1."""
    return shares / (shares.sum(-1, keepdim=True) + _TINY)
