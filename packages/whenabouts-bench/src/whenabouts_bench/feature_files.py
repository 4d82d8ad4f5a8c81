"""Opens feature files, with the installed package that has the entry point group `whenabouts.features`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from whenabouts import plugins


class FeatureSource(Protocol):
    """A feature file or folder: for each item, such as a video or a query, rows of features."""

    @property
    def width(self) -> int:
        """The number of values in a row."""

    @property
    def fingerprint(self) -> Any:
        """The encoder of the features, the hash of its weights, and more; None if the file does not say."""

    def __contains__(self, item: object) -> bool:
        """Whether there are rows of an item."""

    def ids(self) -> Iterable[str]:
        """The ids of all items."""

    def get(self, item: str) -> NDArray[Any]:
        """(T, D) the rows of an item. Raises KeyError for an unknown item, FormatError for invalid rows."""


def open_features(path: str | Path) -> AbstractContextManager[FeatureSource]:
    """The features of a file or folder. Raises FormatError; UsageError if no package for it is installed."""
    source: AbstractContextManager[FeatureSource] = plugins.only(
        "features", "reading feature files", "research"
    ).open_features(path)
    return source
