"""A trained system opened for search: its folder or name, its retriever, its calibration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from whenabouts.models import staged
from whenabouts.models.trained import CONFIG, WEIGHTS, Trained
from whenabouts.ranking.candidates import can_retrieve
from whenabouts.ranking.confidence import FILE as CALIBRATION
from whenabouts.ranking.confidence import TrainedConfidence, confidence_of, load_confidence
from whenabouts.ranking.localize import can_localize
from whenabouts.types import UsageError


@dataclass(frozen=True)
class OpenedModel:
    """A trained system, opened: `name` is what people call it, `place` where it lies.

    `opened` is the folder that was named, and `stamp` changes when its files are replaced; None for one that
    was made in Python or came from a hub. `confidence` says how sure its answers are, where that was measured
    (`whenabouts calibrate --checkpoint`). `retriever` is what chooses the videos in its place.
    """

    trained: Trained
    name: str
    place: str
    stamp: tuple[int, ...] | None
    confidence: TrainedConfidence | None = None
    retriever: OpenedModel | None = None
    opened: Path | None = None

    @property
    def is_current(self) -> bool:
        """Whether its files are those that were read."""
        own = self.opened is None or self.stamp == stamp_of(self.opened)
        return own and (self.retriever is None or self.retriever.is_current)


def open_model(model: str | Path | Trained, retriever: str | Path | Trained | None = None) -> OpenedModel:
    """A trained system by its folder, or by its name on a hub; of a staged run with its retriever.

    A `retriever` that is named chooses the videos, whatever the folder says; the calibration kept there is
    of other answers then, and not read. Raises UsageError and FormatError, also for the calibration of
    another checkpoint beside it.
    """
    own, localizer = (None, model) if isinstance(model, Trained) else staged.stages_of(model)
    if retriever is not None and not isinstance(retriever, Trained):
        retriever = staged.retriever_of(retriever)
    chooser = own if retriever is None else retriever
    opened = _opened(localizer)
    if not isinstance(model, Trained) and staged.is_staged(model):
        folder = Path(model).expanduser()
        opened = replace(opened, name=folder.name or str(model), stamp=stamp_of(folder), opened=folder)
    if chooser is not None:
        opened = replace(opened, retriever=_chooser(chooser, opened))
    if isinstance(model, Trained) or retriever is not None:
        return opened
    if opened.opened is None:  # from a hub
        calibration, fingerprint = opened.trained.calibration, opened.trained.fingerprint
        return replace(opened, confidence=confidence_of(opened.place, calibration, fingerprint))
    first = None if opened.retriever is None else opened.retriever.trained.fingerprint
    fingerprint = staged.fingerprint_of(opened.trained.fingerprint, first)
    return replace(opened, confidence=load_confidence(opened.opened, fingerprint))


def _chooser(place: str | Path | Trained, localizer: OpenedModel) -> OpenedModel:
    """A system that is to choose the videos for another. Raises UsageError where one of them cannot."""
    chooser = _opened(place)
    if not can_retrieve(chooser.trained.model):
        raise UsageError(f"{chooser.name} ({chooser.trained.system}) chooses no videos; name a retriever")
    if not can_localize(localizer.trained.model):
        raise UsageError(
            f"{localizer.name} ({localizer.trained.system}) finds no moments in the videos that "
            f"{chooser.name} chooses; name a localizer, or leave out the retriever"
        )
    return chooser


def _opened(model: str | Path | Trained) -> OpenedModel:
    """One system, without its calibration."""
    if isinstance(model, Trained):
        return OpenedModel(model, model.system, f"python:{model.fingerprint}", None)
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return OpenedModel(Trained.from_pretrained(model), folder.name or str(model), str(model), None)
    stamp = stamp_of(folder)
    trained = Trained.from_pretrained(folder)
    return OpenedModel(trained, folder.name or str(model), str(folder.resolve()), stamp, opened=folder)


def stamp_of(folder: Path) -> tuple[int, ...]:
    """Sizes and times of a system's files: what changes when they are replaced."""
    places = [folder / name for name in (WEIGHTS, CONFIG, CALIBRATION, staged.SYSTEM)]
    if staged.is_staged(folder):
        stages = staged.read_stages(folder)
        places += [stages.localizer / name for name in (WEIGHTS, CONFIG)]
        places += [stages.retriever / name for name in (WEIGHTS, CONFIG) if stages.retriever is not None]
    stats = [path.stat() for path in places if path.is_file()]
    return tuple(number for stat in stats for number in (stat.st_size, stat.st_mtime_ns))
