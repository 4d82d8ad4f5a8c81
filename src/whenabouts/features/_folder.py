"""A folder with one NumPy file an item: what its layouts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whenabouts.features._declared import declared
from whenabouts.features.protocol import Options, Place
from whenabouts.features.source import FeatureSource
from whenabouts.formats.opened import FormatError


class FolderSource(FeatureSource):
    """One file an item; what made them stands in `fingerprint.json` beside them."""

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place.path, options)
        self._place = place

    def _facts(self) -> Mapping[str, Any]:
        return declared(self._place)

    def _by_id(self, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
        """File names by id. Raises FormatError where two files have one id."""
        found: dict[str, str] = {}
        for item, name in pairs:
            if item in found:
                raise FormatError(
                    self.path,
                    f"has two files, {found[item]!r} and {name!r}",
                    field=f"item {item!r}",
                    accepted="one",
                )
            found[item] = name
        return found

    def _file_of(self, name: str, item: str) -> Path:
        """A file of the folder. Raises FormatError for a link that leads out of it."""
        path = self.path / name
        if path.is_symlink():
            try:
                inside = path.resolve(strict=True).is_relative_to(self.path.resolve(strict=True))
            except (OSError, RuntimeError):
                raise FormatError(self.path, "is a link that leads nowhere", field=f"item {item!r}") from None
            if not inside:
                raise FormatError(
                    self.path,
                    "is a link that leads out of the folder",
                    field=f"item {item!r}",
                    accepted="files in the folder; the folder itself may be a link",
                )
        return path
