"""From features to the model's width: what stands before the encoders of XML and ReLoCLNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whenabouts.models._parts.dropout import Dropout
from whenabouts.models._parts.packing import PackedBlock, Packing
from whenabouts.types import UsageError


class InputProjection(PackedBlock):
    """LayerNorm of the raw features, dropout, linear layer, ReLU."""

    def __init__(self, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.dropout = Dropout(dropout, inplace=True)
        self.linear = nn.Linear(features, width)

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, features) to (N, width), for packed rows."""
        projected: Tensor = self.linear(self.dropout(self.norm(rows)))
        return projected.relu()


class PositionEmbedding(PackedBlock):
    """A learned vector for each place is added; LayerNorm, dropout.

    `noun` is what the sequence is made of, for the message where one is longer than the table.
    """

    def __init__(self, places: int, width: int, dropout: float, noun: str) -> None:
        super().__init__()
        self.table = nn.Embedding(places, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout, inplace=True)
        self.noun = noun

    def on_rows(self, rows: Tensor, packing: Packing) -> Tensor:
        """(N, width) to (N, width), for packed rows; UsageError where a sequence is too long."""
        check_length(packing.steps, self.table.num_embeddings, self.noun)
        placed: Tensor = self.norm(rows + self.table(packing.positions()))
        dropped: Tensor = self.dropout(placed)
        return dropped


def check_length(steps: int, places: int, noun: str) -> None:
    """Raise UsageError where a sequence has more `steps` than a table has places."""
    if steps > places:
        raise UsageError(
            f"a sequence of {steps} {noun}, but the model has places for {places}: "
            f"cut or pool it when it is read, or train with max_{noun} = {steps}"
        )


def initialise(model: nn.Module, spread: float) -> None:
    """Draw fresh weights: normal with deviation `spread` for linear layers and tables, biases zero.

    LayerNorm starts as the identity; convolutions keep PyTorch's own start. As in the released XML.
    """
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=spread)
        elif isinstance(module, nn.Conv1d):
            module.reset_parameters()
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def unit(rows: Tensor) -> Tensor:
    """Rows brought to length 1 (a row of zeros stays one)."""
    return torch.nn.functional.normalize(rows, dim=-1)
