"""The models that whenabouts can use by name: their purpose, and what is on this machine.

Sizes are those of the files on this machine. Licences are those that the package stated, or the hub at
download. For models that are not here, size and licence are unknown; `models get` asks the hub.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from whenabouts.checkers import check_models
from whenabouts.encoders import known_models
from whenabouts.intake import hub
from whenabouts.intake.hub import ModelCard, Pin
from whenabouts.video import shots, speech_models


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A line of `whenabouts models list`.

    `size` (bytes) is None if the model is not here, `licence` is "" if unknown, `revision` the downloaded one
    ("": not pinned).
    """

    model: ModelCard
    size: int | None = None
    licence: str = ""
    revision: str = ""

    @property
    def is_here(self) -> bool:
        return self.size is not None

    def to_json(self) -> dict[str, Any]:
        model = self.model
        return {
            "name": model.name,
            "alias": model.alias or None,
            "purpose": model.purpose,
            "megabytes": None if self.size is None else round(self.size / 1e6, 1),
            "licence": self.licence or None,
            "installed": self.is_here,
            "revision": self.revision or None,
            "from": "package" if model.packages else "hub",
        }


def listed_models() -> list[ListedModel]:
    """The known models, then others that were downloaded."""
    cards = _cards()
    names = {model.name for model in cards}
    downloads = [pin for pin in hub.pins() if pin.repository not in names]
    return [*(_listed(model) for model in cards), *(_fetched(pin) for pin in downloads)]


def resolved(name: str) -> ModelCard | None:
    """The known model with this name or alias; None for an unknown name."""
    # The alias of a model without one is "".
    return next((model for model in _cards() if name and name in (model.name, model.alias)), None)


def _cards() -> list[ModelCard]:
    return [*known_models(), *speech_models.MODELS, *shots.known_models(), *check_models()]


def _listed(model: ModelCard) -> ListedModel:
    if model.packages:
        return _packaged(model)
    pin = hub.pin_of(model.name)
    try:
        folder = hub.folder_of(model.name, lambda folder: any(folder.glob("model*")))
    except hub.HubError:
        return ListedModel(model)
    if pin is None:  # downloaded by another program
        return ListedModel(model, _bytes(folder.rglob("*")))
    return ListedModel(model, pin.size, pin.licence, pin.revision)


def _packaged(model: ModelCard) -> ListedModel:
    installed = ((name, hub.package_folders(name)) for name in model.packages)
    package, places = next((pair for pair in installed if pair[1]), ("", []))
    if not places:
        return ListedModel(model)
    size = _bytes(file for place in places for file in place.rglob("*") if file.suffix != ".pyc")
    names = _distributions().get(package, [])
    return ListedModel(model, size, _licence(names[0]) if names else "")


def _fetched(pin: Pin) -> ListedModel:
    model = ModelCard(pin.repository, "fetched here")
    return ListedModel(model, pin.size if hub.is_fetched(pin) else None, pin.licence, pin.revision)


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def _licence(distribution: str) -> str:
    """The licence that a package states; "" if it states none."""
    facts = importlib.metadata.metadata(distribution)
    stated = next((facts[key] for key in ("License-Expression", "License") if key in facts), "UNKNOWN")
    return "" if stated == "UNKNOWN" or "\n" in stated else stated


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())
