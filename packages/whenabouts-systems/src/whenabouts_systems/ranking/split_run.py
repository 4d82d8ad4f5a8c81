"""Answer the queries of a split with one trained system or two, for `whenabouts run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, get_args

from whenabouts.types import UsageError
from whenabouts_bench.formats.runs import RunSource, Task
from whenabouts_systems.models import staged
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.answerability import ConfidentRun
from whenabouts_systems.ranking.candidates import RankedVideos, can_retrieve
from whenabouts_systems.ranking.confidence import how_to_calibrate, load_confidence
from whenabouts_systems.ranking.encoded_corpus import Progress
from whenabouts_systems.ranking.localize import can_localize
from whenabouts_systems.ranking.proposals import SegmentSettings
from whenabouts_systems.ranking.rank import NMS
from whenabouts_systems.ranking.ranker import Ranker
from whenabouts_systems.ranking.split import PooledSplit, Split, SplitRun, encode_split
from whenabouts_systems.ranking.units import Footage

_MAX_WEIGHT = 1_000_000
"""The largest weight of a video's score; with a larger one, a moment's own score is lost to rounding."""


class SplitFootage(Split, Footage, Protocol):
    """A split whose videos can be read row by row, such as `training.data.Examples`."""


class SystemOnSplit(Protocol):
    """A trained system with its features of a split."""

    @property
    def place(self) -> str:
        """The system's folder, or its name on a hub (owner/name)."""

    @property
    def trained(self) -> Trained:
        """The trained system."""

    @property
    def split(self) -> SplitFootage:
        """The split, with the system's features."""


@dataclass(frozen=True)
class RunOptions:
    """The settings by which a split is answered.

    `task` None takes the tasks that the system can do: all if `all_tasks`, else the first. `decoding` changes
    settings of the checkpoint's decoding. `segments` is the length in seconds of segments of long videos.
    `folder`: encoded videos are kept there, not in memory. For `video_weight` see `Ranker`.
    """

    task: str | None = None
    all_tasks: bool = False
    decoding: Mapping[str, Any] = field(default_factory=dict)
    top_videos: int | None = None
    video_weight: float | None = None
    segments: float | None = None
    folder: str | None = None

    def __post_init__(self) -> None:
        weight = self.video_weight
        if weight is not None and not 0 <= weight <= _MAX_WEIGHT:
            raise UsageError(f"--video-weight {weight:g}: accepted: a number from 0 to {_MAX_WEIGHT:,}")
        for option, value in (("--video-weight", weight), ("--top-videos", self.top_videos)):
            if self.task == "svmr" and value is not None:
                raise UsageError(f"{option} is for the choice of videos; leave it out with --task svmr")


def run_of_split(
    system: SystemOnSplit,
    split: Split,
    options: RunOptions,
    retriever: SystemOnSplit | RankedVideos | None = None,
    progress: Callable[[str], Progress | None] = lambda what: None,
) -> SplitRun:
    """The answers to the queries of a split, from whole videos or from segments.

    `split` is `system.split`, or those of its queries that have pools. `retriever`, if given, chooses the
    videos. `progress` returns the function to call with the progress of a named part, such as "videos".
    """
    if options.decoding.get("min_clips", 0) > (longest := split.clips.max(initial=0)):
        raise UsageError(
            f"--min-clips {options.decoding['min_clips']}: no video has more than {longest} clips"
        )
    pools = len(split.annotations.search_pools) == len(split.queries)
    decoding = _decoding(system.trained.decoding, options, pools=pools)
    retrieval: Split | None = None
    if retriever is not None and not isinstance(retriever, RankedVideos):
        retrieval = split.beside(retriever.split) if isinstance(split, PooledSplit) else retriever.split
    if options.segments is None:
        ranker = Ranker(
            system.trained,
            encode_split(system.trained, system.split, folder=options.folder, progress=progress("videos")),
            decoding=decoding,
            retriever=_chooser(retriever, options, progress),
            video_weight=options.video_weight,
        )
    else:
        ranker = _by_segments(system, retriever, decoding, options, progress)
    tasks = _tasks(ranker, options, pools=pools)
    return SplitRun(ranker, split, tasks, retrieval, progress("queries"))


def _chooser(
    retriever: SystemOnSplit | RankedVideos | None,
    options: RunOptions,
    progress: Callable[[str], Progress | None],
) -> Ranker | RankedVideos | None:
    """The retriever of whole videos, with the videos encoded."""
    if retriever is None or isinstance(retriever, RankedVideos):
        return retriever
    trained = retriever.trained
    decoding = replace(trained.decoding, top_videos=options.top_videos or trained.decoding.top_videos)
    encoded = encode_split(trained, retriever.split, progress=progress("videos"))
    return Ranker(trained, encoded, decoding=decoding)


def _by_segments(
    system: SystemOnSplit,
    retriever: SystemOnSplit | RankedVideos | None,
    decoding: Decoding,
    options: RunOptions,
    progress: Callable[[str], Progress | None],
) -> Ranker:
    """A ranker by segments; see `Ranker.by_segments`."""
    assert options.segments is not None
    if isinstance(retriever, RankedVideos):
        raise UsageError(f"--segments: {retriever.name} ranks only videos; give a trained retriever")
    if options.folder is not None:
        raise UsageError("--on-disk is for whole videos; leave it out, or --segments")
    chooser = retriever or system
    return Ranker.by_segments(
        (chooser.trained, chooser.split),
        (system.trained, system.split),
        SegmentSettings(options.segments),
        decoding=decoding,
        video_weight=options.video_weight,
        progress=progress("segments"),
    )


def _decoding(decoding: Decoding, options: RunOptions, *, pools: bool) -> Decoding:
    """The checkpoint's decoding, changed by options; in pools overlapping moments are suppressed."""
    changes = dict(options.decoding)
    if options.top_videos is not None:
        changes["top_videos"] = options.top_videos
    if pools and decoding.nms is None:
        changes.setdefault("nms", NMS)
    if "spans_per_query" in changes:
        changes["spans_before_nms"] = max(decoding.spans_before_nms, int(changes["spans_per_query"]))
    return replace(decoding, **changes)


def _tasks(ranker: Ranker, options: RunOptions, *, pools: bool) -> tuple[Task, ...]:
    """The tasks to write: the chosen one, or all for a submission, else the first that the system can do."""
    if options.task is not None:
        return tuple(task for task in get_args(Task) if task == options.task.upper())
    if pools and "SVMR" in ranker.tasks:
        return ("VCMR",)
    return ranker.tasks if options.all_tasks else ranker.tasks[:1]


def check_pair(retriever: SystemOnSplit | None, localizer: SystemOnSplit, chooser: str) -> None:
    """Raise UsageError if one of two systems cannot do its part, or their splits have different queries.

    Messages call the retriever `chooser`; `retriever` None means that it is a run file.
    """
    if retriever is not None and not can_retrieve(retriever.trained.model):
        raise UsageError(f"{chooser} ({retriever.trained.system}) cannot choose videos; name a retriever")
    if not can_localize(localizer.trained.model):
        raise UsageError(
            f"{localizer.place} ({localizer.trained.system}) cannot find moments in the videos that "
            f"{chooser} chooses; name a localizer, or leave out the retriever"
        )
    if retriever is None:
        return
    first, second = ([query.id for query in system.split.queries] for system in (retriever, localizer))
    if first != second:
        raise UsageError(
            f"{chooser}: its {retriever.split.name} split has {len(first)} queries, that of "
            f"{localizer.place} {len(second)}, and they are not the same; both must name the same annotations"
        )


def with_confidence(run: SplitRun, checkpoint: str, *, of_pair: bool) -> RunSource:
    """The run with the confidence of each query's first answer, by the checkpoint's calibration.

    `of_pair`: the run's retriever is the one of the checkpoint. Raises UsageError for a checkpoint without a
    calibration, or if its calibration does not hold for this run.
    """
    localizer: Any = run.ranker.trained
    chooser: Any = run.ranker.retriever
    is_pair = isinstance(chooser, Ranker) and of_pair
    pair = staged.fingerprint_of(localizer.fingerprint, chooser.trained.fingerprint if is_pair else None)
    confidence = load_confidence(checkpoint, pair, localizer.calibration)
    if confidence is None:
        raise UsageError(
            f"{checkpoint}: its answers are not calibrated; {how_to_calibrate(checkpoint)} first, or leave "
            "out --confidence"
        )
    return ConfidentRun.of(run, confidence, of_pair=is_pair)


def who_answered(run: SplitRun, retriever: SystemOnSplit | RankedVideos | None) -> str:
    """The names of the systems behind a run: "retriever + localizer", or one of them."""
    localizer = str(run.ranker.trained.system)
    if retriever is None or run.tasks == ("SVMR",):
        return localizer
    chooser = retriever.name if isinstance(retriever, RankedVideos) else retriever.trained.system
    return chooser if run.tasks == ("VR",) else f"{chooser} + {localizer}"
