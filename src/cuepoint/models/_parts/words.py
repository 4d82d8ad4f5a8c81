"""Words of queries as features: those that come, or what a DistilBERT inside the system makes of ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from cuepoint.models._parts.text_encoder import SIZES, new_bert, read_pretrained
from cuepoint.models.protocol import QueryBatch
from cuepoint.types import UsageError


class Words(nn.Module):
    """Features (Q, L, `width`) of words.

    With `sizes` (see `text_encoder.SIZES`; what is not named is as there) words are ids and pass through a
    DistilBERT; with None they are features of `width` values already.
    """

    def __init__(self, width: int, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.bert = None if sizes is None else new_bert(sizes)
        self.width: int = width if sizes is None else {**SIZES, **sizes}["dim"]

    def forward(self, queries: QueryBatch) -> Tensor:
        """(Q, L, width); UsageError for ids where features are expected, and the reverse."""
        if (queries.tokens.dim() == 2) != (self.bert is not None):
            found = "ids" if queries.tokens.dim() == 2 else "features"
            raise UsageError(
                f"words are {found}; this system has {'no' if self.bert is None else 'a'} text encoder: "
                'ids need [features] query = "tokenizer:NAME", features a file'
            )
        if self.bert is None:
            return queries.tokens
        ids = queries.tokens.masked_fill(~queries.mask, 0)
        made: Tensor = self.bert(input_ids=ids, attention_mask=queries.mask.long()).last_hidden_state
        return made

    def begin(self, name: str) -> None:
        """Read the weights of a pretrained DistilBERT (a folder, or a hub's repository) into ours, if any."""
        if self.bert is not None:
            read_pretrained(self.bert, name)


def strange_sizes(sizes: Mapping[str, int]) -> Iterator[str]:
    """Sentences on sizes of a text encoder that there are not, or that are below 1."""
    for name, size in sizes.items():
        if name not in SIZES:
            yield f"text has no size {name!r}; it has {', '.join(SIZES)}"
        elif type(size) is not int or size < 1:
            yield f"text.{name} = {size!r}: a whole number, at least 1, is expected"
