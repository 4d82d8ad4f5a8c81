"""The tables of an experiment but for `[model]` and `[decoding]`, as frozen dataclasses.

`tables.converted` makes them of TOML and checks every value against the type and range of its field
(`models.settings`). `__post_init__` checks what concerns several keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from whenabouts.models._parts.cross_directional import MeanOf
from whenabouts.models.inputs import LongVideos
from whenabouts.models.settings import NotNegative, Positive, Share, Size
from whenabouts.research.evaluation.metrics import parse_metric
from whenabouts.research.evaluation.protocols import find_protocol
from whenabouts.types import UsageError

CountOrZero = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]

Labels = Literal["inclusive", "as-released"]
Positives = Literal["judged", "sentence", "similar", "own"]
Order = Literal["random", "by-length"]

STAGE = "stage:"
"""Before the name of an earlier stage, where its folder is meant (see `stages`)."""
TOKENIZER = "tokenizer:"
"""Before the name of a tokenizer, in place of a file of token features."""


@dataclass(frozen=True, slots=True)
class NegativeSettings:
    """The table `[data.negatives]`: how hard negatives are drawn by the scores of a first stage (CroCs).

    `videos` of each query (p'(v|q)) and `queries` of each video (p'(q|v)) an epoch; 0: none. `share`
    "query": a query has the videos that were drawn for it, as published, so that a batch holds up to
    `videos` videos more for each of its queries. "batch": a batch holds `videos` in all, drawn for its
    queries in turn, and each of its queries is compared with all of them that are candidates for it (and
    `queries` in all, likewise); cheaper, for machines without a GPU, but what was drawn for one query is
    chance for the others: the more queries share them, the less is left of p'. `mean`, `temperature`,
    `highest` (candidates a row; none: all) are as in `models._parts.cross_directional`.
    """

    videos: CountOrZero = 50
    queries: CountOrZero = 100
    share: Literal["query", "batch"] = "query"
    mean: MeanOf = "own"
    temperature: Positive = 1.0
    highest: Size | None = None


@dataclass(frozen=True, slots=True)
class RetrievedSettings:
    """The table `[data.retrieved]`: negatives that are drawn from the list of a retriever (PREM, CONQUER).

    `lists` is a run file in any format that we read; or the folder of a trained retriever, which then ranks
    the training split; or "stage:NAME", the folder NAME beside that of this training, as the stages of one
    command have it. "{seed}" in it stands for the seed. `videos` are drawn for each query and epoch (PREM: 4
    on TVR, 2 on DiDeMo; CONQUER: 3); 0: none. They are drawn from the first `depth` of the list (PREM: 100);
    or, with `beyond_own` (CONQUER: 1000), from its first (rank of the query's own video + so many), and from
    all of it where that video is not listed. A query of several own videos has the rank of the best.
    `own_within` (CONQUER: 100): examples whose own video is not among the first so many are left out.
    """

    lists: str = ""
    videos: CountOrZero = 0
    depth: Size = 100
    beyond_own: Size | None = None
    own_within: Size | None = None

    @property
    def needs_lists(self) -> bool:
        """Whether these settings draw from lists, or leave out examples by them."""
        return self.videos > 0 or self.own_within is not None

    @property
    def description(self) -> str:
        """How many videos are drawn and of which, for people."""
        depth = f"{self.depth:,}"
        if self.beyond_own is not None:
            depth = f"(rank of its own video + {self.beyond_own:,})"
        return f"{self.videos} for each query and epoch, of the first {depth} videos"

    @property
    def reach(self) -> int | None:
        """How many videos of a list are ever looked at; None: as many as it has."""
        if self.beyond_own is None:
            return max(self.depth, self.own_within or 0)
        return None if self.own_within is None else self.own_within + self.beyond_own


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The table `[data]` of an experiment: annotations, and how they become training examples.

    `train`, `validation`, `test` are files of judgements in any format that we read, or split names of
    `dataset` where that is given. A relative path lies in `folder`, else beside the features.
    `pairs` is a file of potentially relevant pairs. `weights` "relevance" weighs each example by its
    judgement's relevance (a ranked training set). `labels` is how seconds become clips: see
    `batches.spans_in_clips`. `positives` says which videos are never a query's negatives: "judged", all that
    are judged relevant to it; "sentence", also those of queries of the same words; "similar", also those of
    queries that `pairs` holds as relevant to it (CroCs: sentences of a similarity of 0.9 and more); "own",
    its own alone. `order` "by-length" puts videos of similar length into one batch. `batch_of` "videos":
    `training.batch_size` counts videos, and each comes with all its queries.

    `first_stage` is the folder of a training (CroCs' second stage), or "stage:NAME": this one begins with its
    weights, and has it choose the hard negatives that `negatives` asks for. `retrieved` draws negatives from
    the lists of a retriever instead (PREM, CONQUER).
    """

    train: str = ""
    validation: str = ""
    test: str = ""
    dataset: str = ""
    folder: str = ""
    pairs: str = ""
    weights: Literal["none", "relevance"] = "none"
    labels: Labels = "inclusive"
    positives: Positives = "judged"
    order: Order = "random"
    batch_of: Literal["queries", "videos"] = "queries"
    first_stage: str = ""
    negatives: NegativeSettings = field(default_factory=NegativeSettings)
    retrieved: RetrievedSettings = field(default_factory=RetrievedSettings)

    def __post_init__(self) -> None:
        if self.positives == "similar" and not self.pairs:
            raise UsageError(
                "positives is 'similar' and pairs is missing; make them with `whenabouts relevance pairs "
                "--detector sent --threshold 0.9`"
            )
        if self.first_stage and self.retrieved.videos and (self.negatives.videos or self.negatives.queries):
            raise UsageError(
                "first_stage and retrieved both choose negatives; keep one, with retrieved.videos = 0 "
                "or with negatives.videos = 0 and negatives.queries = 0"
            )

    def beside(self, features: Path, name: str) -> Path:
        """A file that is named here: in `folder`, else beside the features."""
        return (Path(self.folder).expanduser() if self.folder else features) / Path(name).expanduser()


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """The table `[features]` of an experiment: files below the features folder, and how rows are made ready.

    `query` is the file of token features, or "tokenizer:NAME" for a system with a text encoder of its own (a
    folder, or a hub's repository). `streams` are stream name -> file; "{split}" in a name stands for
    train, validation or test. A video may lack the streams in `optional` (rows of zeros, counted).
    `clip_seconds` is the length of a row where the files do not tell. `memory_mb` bounds what is held in
    memory; larger files are read as they are needed. `normalise` brings rows to unit length, those of all
    streams, of none, or of the ones it names. `cache` is a folder for copies that open at once, none
    where it is empty. The rest is as in `models.inputs.Inputs`.
    """

    query: str = ""
    streams: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    clip_seconds: Annotated[float, Meta(gt=0, description="seconds above 0")] | None = None
    max_clips: Size = 100
    max_tokens: Size = 30
    long_videos: LongVideos = "pool"
    tef: bool = False
    clips_per_cell: Size = 1
    normalise: bool | tuple[str, ...] = True
    normalise_query: bool = True
    memory_mb: Annotated[int, Meta(ge=0, description="megabytes, 0 or more")] = 4096
    cache: str = ""

    def __post_init__(self) -> None:
        normalised = () if isinstance(self.normalise, bool) else self.normalise
        for setting, names in (("optional", self.optional), ("normalise", normalised)):
            strange = sorted(set(names) - set(self.streams))
            if strange:
                there = ", ".join(self.streams) or "none"
                raise UsageError(f"{setting} names the stream {strange[0]!r}; there are {there}")

    def normalises(self, stream: str) -> bool:
        """Whether rows of a stream are brought to unit length."""
        return self.normalise if isinstance(self.normalise, bool) else stream in self.normalise

    @property
    def tokenizer(self) -> str:
        """The name of the tokenizer of queries; "" where they are features."""
        return self.query.removeprefix(TOKENIZER) if self.query.startswith(TOKENIZER) else ""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """The table `[training]`.

    `warmup` is the share of all steps in which the learning rate rises; `schedule` what it does then.
    `max_norm` cuts gradients: each tensor's by itself with "bertadam", of all together with "adamw"; 0: not.
    `evaluate_every` counts epochs and may be a fraction. `metric` is the sum of the metrics between `+`, the
    higher the better; `patience` is how many evaluations without a gain are borne (none: all).
    `protocol` is how `whenabouts evaluate` calls it ("": the judgements choose). `save_minutes` is how often
    the state is kept inside an epoch. `rates` are multiples of the learning rate for the parameters whose
    names begin so; `frozen` are epochs for which such parameters do not learn yet. At each of the epochs
    `milestones` (0 is the first) the learning rate is multiplied by `milestone_factor`. `betas` are those of
    either optimizer.
    """

    epochs: Size = 100
    batch_size: Size = 128
    learning_rate: Positive = 1e-4
    weight_decay: NotNegative = 0.01
    warmup: Share = 0.01
    schedule: Literal["linear", "constant"] = "linear"
    optimizer: Literal["bertadam", "adamw"] = "bertadam"
    max_norm: NotNegative = 1.0
    seed: Seed = 2018
    evaluate_every: Positive = 1.0
    metric: str = "VCMR R@1,IoU=0.5 + VCMR R@1,IoU=0.7"
    protocol: str = ""
    patience: Size | None = 10
    precision: Literal["fp32", "bf16"] = "fp32"
    save_minutes: Positive = 10.0
    rates: Mapping[str, Positive] = field(default_factory=dict)
    frozen: Mapping[str, CountOrZero] = field(default_factory=dict)
    milestones: tuple[CountOrZero, ...] = ()
    milestone_factor: Positive = 0.1
    betas: tuple[Share, Share] = (0.9, 0.999)

    def __post_init__(self) -> None:
        # A metric or protocol that does not exist is refused here, before anything is read.
        self.metrics  # noqa: B018
        if self.protocol:
            find_protocol(self.protocol)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics whose sum is the measure of the best."""
        return tuple(parse_metric(part).name for part in self.metric.split("+"))
