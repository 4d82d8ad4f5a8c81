"""Which models a page may choose for a job, and the commands that install missing ones."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from whenabouts.encoders.onnx_bert import install_command
from whenabouts.known_models import ListedModel, listed_models
from whenabouts.streams import frame_stream
from whenabouts.types import UsageError
from whenabouts.video.speech_models import MODELS as SPEECH_MODELS
from whenabouts.video.speech_models import PACKAGED, why_unavailable

_SMALL_VISION = "openai/clip-vit-base-patch32"
_VISION_PACKAGES = ("torch", "transformers")


@dataclass(frozen=True, slots=True)
class Missing:
    """What a missing model would add, and the command that installs it."""

    adds: str
    command: str


def offered() -> dict[str, list[ListedModel]]:
    """Models on this machine, for speech ("transcribe") and for "pictures"."""
    speech = {model.name for model in SPEECH_MODELS}
    here = [listed for listed in listed_models() if listed.is_here]
    return {
        "transcribe": [
            listed
            for listed in here
            if listed.model.name in speech and why_unavailable(name_of(listed)) is None
        ],
        "pictures": [
            listed
            for listed in here
            if "pictures" in listed.model.purpose and not listed.model.purpose.startswith("--")
        ],
    }


def check_offered(task: Mapping[str, object]) -> dict[str, str]:
    """The models of a job, by purpose. Raises UsageError for a model that is not offered.

    A job may come from someone else's corpus, so a name is never used as a path and never downloaded.
    """
    options: dict[str, str] = {}
    chosen = {kind: str(task.get(kind) or "") for kind in ("transcribe", "pictures")}
    if not any(chosen.values()):
        return options
    for kind, listed in offered().items():
        name = chosen[kind]
        names = [name_of(each) for each in listed]
        if name and name not in names:
            raise UsageError(
                f"{kind}: {name[:100]!r} is not on this machine, which has {', '.join(names) or 'none'}; "
                "`whenabouts models list` lists others"
            )
        options |= {kind: name} if name else {}
    return options


def missing(streams: Collection[str], *, is_heard: bool, has_wordless_sound: bool) -> list[Missing]:
    """Missing models that would make more of a plan searchable. `streams` are those of the plan."""
    lacks = []
    if command := install_command():
        lacks.append(Missing("words by their meaning, not only by their letters", shlex.join(command)))
    here = offered()
    if has_wordless_sound and not is_heard and not here["transcribe"]:
        lacks.append(Missing("speech without subtitles", "pip install 'whenabouts[speech-offline]'"))
    if frame_stream(streams) is None and not here["pictures"]:
        packages = all(importlib.util.find_spec(name) for name in _VISION_PACKAGES)
        install = "" if packages else "pip install 'whenabouts[vision]' && "
        lacks.append(Missing("what pictures show", f"{install}whenabouts models get {_SMALL_VISION}"))
    return lacks


def name_of(listed: ListedModel) -> str:
    """The name to pass to an index run."""
    return listed.model.name if listed.model.name == PACKAGED else listed.model.alias or listed.model.name
