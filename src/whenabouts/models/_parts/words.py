"""Words of queries as features: those that come, or what a DistilBERT inside the system makes of ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from whenabouts.models._parts.text_encoder import SIZES, features_of_words, new_bert, read_pretrained
from whenabouts.models.protocol import QueryBatch


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
        return features_of_words(self.bert, queries)

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
