"""Protocols by name and version: the conventions that make numbers comparable with papers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from whenabouts.types import UsageError, did_you_mean

if TYPE_CHECKING:
    from whenabouts.overlap import Over
    from whenabouts_bench.formats.annotations import Annotations


@dataclass(frozen=True)
class Protocol:
    """Conventions for measuring a run against judgements.

    A protocol measures any metric; with several `annotators` only R and mIoU.

    - `single`: IoU is computed and compared in float32, as in the released programs.
    - `strict`: a hit needs an IoU above the threshold; otherwise equal to it is enough.
    - `slack`: added to the IoU, because decimals that are equal on paper differ in floats.
    - `list_depth`: the number of rows of a list that are read; None: all.
    """

    name: str
    version: int
    summary: str
    metrics: tuple[str, ...]
    over: Over = "union"
    single: bool = False
    slack: float = 0.0
    strict: bool = False
    gain: Literal["linear", "exponential"] = "linear"
    list_depth: int | None = None
    full_pools: bool = False
    """Evaluated inside pools; queries whose pool is smaller than the file's largest are left out."""
    zero_grades: bool = True
    """Whether moments of grade 0 can be matched, and queries without a higher grade count (as 0)."""
    relevant_from: float | None = None
    """The lowest grade of a right moment, as trec_eval's `-l`, for metrics without gains; None: above 0."""
    spanless: bool = True
    """Whether queries whose judged moments are all empty count (as 0). False: they are left out, and if all
    judged moments of the file are empty, only VR is measured."""
    missing: Literal["zero", "left out"] = "zero"
    """Whether queries missing from the run count as 0 or are left out."""
    given_video: bool = False
    """Whether runs that were given each query's video are accepted."""
    annotators: int = 1
    """The number of annotators whose spans a hit must overlap enough. With several, the truth is the span of
    each annotator (the query's metadata `annotated`) instead of their agreement."""
    by_score: bool = False
    """Whether mAP reads the list by score; else in the order of the list."""
    truth_reader: str = "whenabouts_bench.formats"
    """The module whose `read_annotations` reads files of judgements."""
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and version: "tvr@1"."""
        return f"{self.name}@{self.version}"


def _recalls(task: str, ks: Iterable[int], ious: Iterable[float]) -> tuple[str, ...]:
    return tuple(f"{task}R@{k},IoU={iou}" for iou in ious for k in ks)


_TVR_K = (1, 5, 10, 100)
_TVR = (
    *_recalls("", _TVR_K, (0.5, 0.7)),
    *_recalls("SVMR ", _TVR_K, (0.5, 0.7)),
    *(f"VR R@{k}" for k in _TVR_K),
)
_RVMR = tuple(f"nDCG@{k},IoU={iou}" for k in (10, 20, 40) for iou in (0.3, 0.5, 0.7))
_MVMR = _recalls("", (1, 5, 20, 50), (0.3, 0.5, 0.7))

_SLACK = 1e-9
"""IoUs that reach a threshold on paper may miss it in floats: 158 of 400 at 0.7 (test_thresholds.py)."""

_POOLS = Protocol(
    name="mvmr",
    version=1,
    summary="pools with several positives: Rank n@m, seconds everywhere",
    metrics=_MVMR,
    over="hull",
    single=True,
    full_pools=True,
    given_video=True,
    notes=(
        "A hit is any positive of the query. Moments of videos outside the query's pool are set aside, "
        "queries whose pool is not full are left out.",
    ),
)
_SPR = Protocol(
    name="rvmr-spr",
    version=2,
    summary="as SPR's program: gain 2^grade - 1, IoU at least the threshold, grade 0 dropped",
    metrics=_RVMR,
    slack=_SLACK,
    gain="exponential",
    zero_grades=False,
    notes=("Moments of grade 0 do not take part, queries without a higher grade are left out.",),
)

_PROTOCOLS = (
    Protocol(
        name="tvr",
        version=1,
        summary="TVR's three tasks; agrees with the released evaluation on every number it gives",
        metrics=_TVR,
        over="hull",
        single=True,
        list_depth=100,
        notes=("IoU in float32, at least the threshold; lists are read in their order, 100 deep.",),
    ),
    Protocol(
        name="vcmr",
        version=1,
        summary="TVR's three tasks for any data set, K and IoU",
        metrics=_TVR,
        slack=_SLACK,
        spanless=False,
        notes=("IoU in float64, at least the threshold; decimals that are equal on paper are equal.",),
    ),
    Protocol(
        name="didemo",
        version=1,
        summary="DiDeMo as HERO's program evaluates it: a hit overlaps the spans of two annotators enough",
        metrics=_TVR,
        over="hull",
        single=True,
        annotators=2,
        list_depth=100,
        notes=("A hit overlaps the spans of two annotators enough; these need not be alike.",),
    ),
    _POOLS,
    replace(
        _POOLS,
        name="mvmr-as-released",
        summary="as the released program: extra positives of TACoS are in frames, but read as seconds",
        missing="left out",
        truth_reader="whenabouts_bench.released.mvmr",
        notes=(*_POOLS.notes, "Extra positives of a file in frames are compared as if they were seconds."),
    ),
    Protocol(
        name="rvmr",
        version=2,
        summary="nDCG@K,IoU>=m as in TVR-Ranking's paper: linear gain, IoU at least the threshold",
        metrics=_RVMR,
        slack=_SLACK,
    ),
    Protocol(
        name="rvmr-as-released",
        version=1,
        summary="as TVR-Ranking's program: gain 2^grade - 1, IoU above threshold, missing queries left out",
        metrics=_RVMR,
        strict=True,
        gain="exponential",
        missing="left out",
    ),
    _SPR,
    replace(
        _SPR,
        name="rvmr-spr-as-released",
        version=1,
        slack=0.0,
        summary="rvmr-spr without its tolerance of 1e-9; queries missing from the run are left out",
        missing="left out",
    ),
    Protocol(
        name="qvh",
        version=1,
        summary="QVHighlights: R@1, mAP over IoU 0.5 to 0.95 and by length, highlights where given",
        metrics=(
            "R@1,IoU=0.5",
            "R@1,IoU=0.7",
            "mAP",
            "mAP,IoU=0.5",
            "mAP,IoU=0.75",
            "mAP,length=short",
            "mAP,length=middle",
            "mAP,length=long",
            *(f"HL {measure},saliency={grade}" for grade in (2, 3, 4) for measure in ("mAP", "Hit@1")),
        ),
        list_depth=10,
        given_video=True,
        by_score=True,
        notes=(
            "mAP reads the first 10 windows of a list, by their scores; R@1 takes the first of the list.",
        ),
    ),
)

PROTOCOLS = {protocol.name: protocol for protocol in _PROTOCOLS}

_TASKS = {"vr": "VR R@1", "svmr": "SVMR R@1,IoU=0.5"}
"""Tasks that users mistake for protocols -> one of their metrics."""


def find_protocol(name: str, *, as_released: bool = False) -> Protocol:
    """The protocol of that name, or name@version; with `as_released` its twin `NAME-as-released`.

    Raises UsageError for an unknown name or version, or without a twin.
    """
    bare, at, version = name.partition("@")
    protocol = PROTOCOLS.get(bare)
    if protocol is None and (metric := _TASKS.get(name.lower())):
        raise UsageError(
            f"{name!r} is a task, not a protocol; tvr and vcmr measure it: `whenabouts evaluate vcmr "
            f'--truth FILE --run FILE --metric "{metric}"`'
        )
    if protocol is None:
        raise UsageError(
            f"{name!r} is not a protocol; known: {', '.join(PROTOCOLS)}{did_you_mean(bare, PROTOCOLS)}"
        )
    if at and version != str(protocol.version):
        raise UsageError(
            f"{name!r}: version {version} is not available; this whenabouts has {protocol.label}"
        )
    if not as_released or bare.endswith("-as-released"):
        return protocol
    if f"{bare}-as-released" not in PROTOCOLS:
        raise UsageError(f"{bare} has no -as-released twin, because no released program differs from it")
    return PROTOCOLS[f"{bare}-as-released"]


def protocol_for(
    annotations: Annotations, chosen: Protocol | None = None, relevant_from: float | None = None
) -> Protocol:
    """The chosen protocol, else `Annotations.protocol`; with `relevant_from` if that is given."""
    protocol = chosen or PROTOCOLS[annotations.protocol]
    return protocol if relevant_from is None else replace(protocol, relevant_from=relevant_from)
