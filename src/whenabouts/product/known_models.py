"""The models that whenabouts can use by name: what each is for, and whether it is on this machine."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from whenabouts import hub
from whenabouts.checkers import check_models
from whenabouts.encoders import known_models
from whenabouts.hub import ModelCard, Pin
from whenabouts.video import speech_models


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A line of `whenabouts models list`; `revision` is the one that was fetched ("": none was pinned)."""

    model: ModelCard
    is_here: bool
    revision: str = ""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        model = self.model
        return {
            "name": model.name,
            "alias": model.alias or None,
            "purpose": model.purpose,
            "megabytes": round(model.megabytes, 1),
            "licence": model.licence or None,
            "installed": self.is_here,
            "revision": self.revision or None,
            "from": "package" if model.package else "hub",
        }


def listed_models() -> list[ListedModel]:
    """All that are known by name, then what else was fetched."""
    cards = [*known_models(), *speech_models.MODELS, *check_models()]
    names = {model.name for model in cards}
    others = [pin for pin in hub.pins() if pin.repository not in names]
    return [*(_listed(model) for model in cards), *(_fetched(pin) for pin in others)]


def resolved(name: str) -> ModelCard | None:
    """The known model of a name or an alias."""
    return next((m.model for m in listed_models() if name in (m.model.name, m.model.alias)), None)


def _listed(model: ModelCard) -> ListedModel:
    if model.package:
        return ListedModel(model, importlib.util.find_spec(model.package) is not None)
    pin = hub.pin_of(model.name)
    try:
        hub.folder_of(model.name, lambda folder: any(folder.glob("model*")))
    except hub.HubError:
        return ListedModel(model, False)
    return ListedModel(model, True, pin.revision if pin else "")


def _fetched(pin: Pin) -> ListedModel:
    model = ModelCard(pin.repository, "fetched here", pin.size / 1e6, pin.licence)
    return ListedModel(model, hub.is_fetched(pin), pin.revision)
