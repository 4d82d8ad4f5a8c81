"""An experiment: one short TOML file with every setting of a training, checked before anything is read.

Tables: `[data]`, `[features]` and `[training]` (the dataclasses below), `[model]` (the system and the fields
of its `Config`), `[decoding]` (`models.decoding.Decoding`). `tables.converted` makes them of TOML and checks
every value against the type and range of its field (`models.settings`); `__post_init__` checks what concerns
several keys. `extends` names a file that this one changes. `[released]` holds the tables that are different
where `as_released = true`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta

import whenabouts_systems
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.metrics import parse_metric
from whenabouts_bench.evaluation.protocols import find_protocol
from whenabouts_systems.models import model_names
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, LongVideos
from whenabouts_systems.models.parts.cross_directional import MeanOf
from whenabouts_systems.models.settings import NotNegative, Positive, Share, Size
from whenabouts_systems.training.tables import (
    converted,
    merged,
    read_toml,
    refuse_unknown,
    set_values,
    toml_of,
    value_of,
)

CountOrZero = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]

Labels = Literal["inclusive", "as-released"]
Positives = Literal["judged", "sentence", "similar", "own"]
Order = Literal["random", "by-length"]

FOLDER = Path(whenabouts_systems.__file__).resolve().parent / "experiments"
"""The experiments that come with the package."""
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
    `highest` (candidates a row; none: all) are as in `models.parts.cross_directional`.
    """

    videos: CountOrZero = 50
    queries: CountOrZero = 100
    share: Literal["query", "batch"] = "query"
    mean: MeanOf = "own"
    temperature: Positive = 1.0
    highest: Size | None = None


@dataclass(frozen=True, slots=True)
class RetrievedSettings:
    """The table `[data.retrieved]`: negatives from the list of a retriever (PREM, CONQUER, SQuiDNet).

    `lists` is a run file in any format that we read; or the folder of a trained retriever, which then ranks
    the training split; or "stage:NAME", the folder NAME beside that of this training, as the stages of one
    command have it. "{seed}" in it stands for the seed. `videos` are drawn for each query and epoch (PREM: 4
    on TVR, 2 on DiDeMo; CONQUER: 3); 0: none. They are drawn from the first `depth` of the list (PREM: 100);
    or, with `beyond_own` (CONQUER: 1000), from its first (rank of the query's own video + so many), and from
    all of it where that video is not listed. A query of several own videos has the rank of the best; with
    `draws` "example" (the ranked SQuiDNet) each of them has draws of its own, by its own rank, and with
    `positives` "own" it alone is taken out. `own_within` (CONQUER: 100): examples whose own video is not
    among the first so many are left out.

    `cooccurrence` (SQuiDNet): queries that say what is usually said (`research.relevance.cooccurrence`) have
    `beyond_own_usual` in place of `beyond_own`. "queries" has the table made of the training queries; else it
    is the table's file.

    `validation`, a place as `lists`: a localizer's moments are validated in the videos that it lists for the
    validation queries; "": in their given videos alone (SVMR). `validation_draws`: in so many that are drawn
    from these lists as for training, by the query's last moment, whose video is then never found (the ranked
    SQuiDNet's program: 40); 0: in the first ones.
    """

    lists: str = ""
    videos: CountOrZero = 0
    depth: Size = 100
    beyond_own: Size | None = None
    own_within: Size | None = None
    cooccurrence: str = ""
    beyond_own_usual: Size = 50
    draws: Literal["query", "example"] = "query"
    validation: str = ""
    validation_draws: CountOrZero = 0

    def __post_init__(self) -> None:
        if self.cooccurrence and self.beyond_own is None:
            raise UsageError(
                "retrieved.cooccurrence says which queries have beyond_own_usual in place of beyond_own, and "
                "there is no retrieved.beyond_own; give it, such as 500, or take cooccurrence away"
            )

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
            if self.cooccurrence:
                depth = f"{depth[:-1]}, or {self.beyond_own_usual:,} where it says the usual)"
        return f"{self.videos} for each {self.draws} and epoch, of the first {depth} videos"

    @property
    def reach(self) -> int | None:
        """How many videos of a list are ever looked at; None: as many as it has."""
        if self.beyond_own is None:
            return max(self.depth, self.own_within or 0)
        usual = self.beyond_own_usual if self.cooccurrence else 0
        return None if self.own_within is None else self.own_within + max(self.beyond_own, usual)


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The table `[data]` of an experiment: annotations, and how they become training examples.

    `train`, `validation`, `test` are files of judgements in any format that we read, or split names of
    `dataset` where that is given. A relative path lies in `folder`, else beside the features.
    `pairs` is a file of potentially relevant pairs. `weights` "similarity" weighs each example by how like
    its query the caption of its moment is (a pseudo training set, paper 004, C.1), "relevance" by the
    relevance of its judgement. `labels` is how seconds become clips: see
    `examples.spans_in_clips`. `positives` says which videos are never a query's negatives: "judged", all that
    are judged relevant to it; "sentence", also those of queries of the same words; "similar", also those of
    queries that `pairs` holds as relevant to it (CroCs: sentences of a similarity of 0.9 and more); "own",
    its own alone. `order` "by-length" puts videos of similar length into one batch. `batch_of` "videos":
    `training.batch_size` counts videos, and each comes with all its queries. `max_windows` of a
    query's windows in a video are learned, drawn anew in each epoch (0: all; the DETR programs: 5).

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
    weights: Literal["none", "relevance", "similarity"] = "none"
    labels: Labels = "inclusive"
    positives: Positives = "judged"
    order: Order = "random"
    batch_of: Literal["queries", "videos"] = "queries"
    max_windows: int = 0
    first_stage: str = ""
    negatives: NegativeSettings = field(default_factory=NegativeSettings)
    retrieved: RetrievedSettings = field(default_factory=RetrievedSettings)

    def __post_init__(self) -> None:
        if self.max_windows < 0:
            raise UsageError(f"max_windows is {self.max_windows}; give a number of windows, or 0 for all")
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
    folder, sought below the features folder and then as it is given, or a hub's repository). `streams` are
    stream name -> file; "{split}" in a name stands for train, validation or test. `sentences` is the file of
    what is said, for a system that reads the words of videos by its tokenizer (HERO; see
    `features.sentences`).
    A video may lack the streams in `optional` (rows of zeros, counted).
    `clip_seconds` is the length of a row where the files do not tell. `memory_mb` bounds what is held in
    memory; larger files are read as they are needed. `normalise` brings rows to unit length, those of all
    streams, of none, or of the ones it names. `cache` is a folder for copies that open at once, none
    where it is empty. The rest is as in `models.inputs.Inputs`.
    """

    query: str = ""
    streams: Mapping[str, str] = field(default_factory=dict)
    sentences: str = ""
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
    `max_norm` cuts gradients: each tensor's by itself with "bertadam", else of all together; 0: not.
    `evaluate_every` counts epochs and may be a fraction. `metric` is the sum of the metrics between `+`, the
    higher the better; `patience` is how many evaluations without a gain are borne (none: all).
    `protocol` is how `whenabouts evaluate` calls it ("": the judgements choose). `save_minutes` is how often
    the state is kept inside an epoch. `rates` are multiples of the learning rate for the parameters whose
    names begin so; `frozen` are epochs for which such parameters do not learn yet. At each of the epochs
    `milestones` (0 is the first) the learning rate is multiplied by `milestone_factor`. `betas` are those of
    the optimizer.
    """

    epochs: Size = 100
    batch_size: Size = 128
    learning_rate: Positive = 1e-4
    weight_decay: NotNegative = 0.01
    warmup: Share = 0.01
    schedule: Literal["linear", "constant"] = "linear"
    optimizer: Literal["bertadam", "adamw", "adamw-as-released"] = "bertadam"
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


_OF_FEATURES = {"streams", "query_width", "max_clips", "max_tokens", "clips_per_cell", "text_encoder"}
"""Fields of a system's `Config` whose values its features say."""


@dataclass(frozen=True)
class Experiment:
    """Every setting of a training. `model` holds fields of the `Config` of `system`.

    `simulated` says that the features are, which every table and card then repeats.
    """

    system: str
    model: Mapping[str, Any] = field(default_factory=dict)
    data: DataSettings = field(default_factory=DataSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    decoding: Decoding = field(default_factory=Decoding)
    title: str = ""
    simulated: bool = False
    as_released: bool = False
    name: str = ""
    """The file, for messages."""

    def config(self, inputs: Inputs) -> Any:
        """The `Config` of the system for features of those widths.

        What a system must know of its inputs it asks for by the names of `Config`'s fields: `streams`
        (stream -> width), `query_width`, `max_clips`, `max_tokens`, `clips_per_cell`, `text_encoder` (whose
        tokenizer it is). Raises UsageError for what it refuses, where it `uses_pairs` and the experiment
        names none, where `model` says of the features what they are not, and where it knows nothing of cells
        of several clips or of a tokenizer.
        """
        of_features = {
            "streams": inputs.widths,
            "query_width": inputs.query.width,
            "max_clips": inputs.max_clips,
            "max_tokens": inputs.max_tokens,
            "clips_per_cell": inputs.clips_per_cell,
            "text_encoder": inputs.tokenizer,
        }
        kind = _config_class(self.system, self.name)
        names = {option.name for option in dataclasses.fields(kind)}
        for name, usual in (("clips_per_cell", 1), ("text_encoder", "")):
            if name not in names and of_features[name] != usual:
                raise UsageError(
                    f"{self.name} [features] asks for {name} = {of_features[name]!r}; "
                    f"{self.system} has no such setting"
                )
        given = {name: of_features[name] for name in of_features if name in names}
        self._refuse_other_sizes(given)
        config = converted({**given, **self.model}, kind, f"{self.name} [model]")
        if getattr(config, "uses_pairs", False) and not self.data.pairs:
            raise UsageError(
                f"{self.name} [data] pairs is missing: the losses of [model] compare relevant pairs; "
                "make them with `whenabouts relevance pairs`"
            )
        return config

    def _refuse_other_sizes(self, given: Mapping[str, Any]) -> None:
        """UsageError where [model] says of the features what they are not; tables of places may be longer."""
        for name, of_features in given.items():
            mine = self.model.get(name, of_features)
            if (mine < of_features) if name in ("max_clips", "max_tokens") else (mine != of_features):
                raise UsageError(
                    f"{self.name} [model] {name} is {mine!r}; the features and their table [features] say "
                    f"{of_features!r}: leave it out, and theirs is taken"
                )

    def check_negatives(self, config: Any) -> None:
        """UsageError where the system, of that `Config`, `uses_negatives` and [data] chooses none."""
        chosen = self.data.first_stage or self.data.retrieved.videos
        if getattr(config, "uses_negatives", False) and not chosen:
            raise UsageError(
                f"{self.name} [data] first_stage is missing: the training that finds the hard negatives; "
                "name its folder with --set data.first_stage=RUN"
            )

    def with_seed(self, seed: int) -> Experiment:
        """The same with another seed. Raises UsageError for one that is out of range."""
        checked = value_of(seed, Seed, "seed")
        return dataclasses.replace(self, training=dataclasses.replace(self.training, seed=checked))

    def with_data(self, folder: str | Path) -> Experiment:
        """The same with its annotations in that folder. Raises UsageError where there is no such folder."""
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise UsageError(f"{folder}: is no folder; give the folder of the annotations (--data)")
        return dataclasses.replace(self, data=dataclasses.replace(self.data, folder=str(path)))

    def tables(self) -> dict[str, Any]:
        """All settings, defaults included, as `load_experiment` reads them."""
        return {
            **{key: getattr(self, key) for key in _TOP},
            "data": dataclasses.asdict(self.data),
            "features": dataclasses.asdict(self.features),
            "model": {"system": self.system, **self._defaults(), **self.model},
            "training": dataclasses.asdict(self.training),
            "decoding": self.decoding.to_json(),
        }

    def _defaults(self) -> dict[str, Any]:
        """The defaults of the system's `Config`, but for what its features say."""
        defaults = {
            option.name: option.default_factory() if callable(option.default_factory) else option.default
            for option in dataclasses.fields(_config_class(self.system, self.name))
            if option.name not in _OF_FEATURES
        }
        return {name: value for name, value in defaults.items() if value is not dataclasses.MISSING}

    def to_toml(self) -> str:
        """All settings, defaults included, as a file that `load_experiment` reads."""
        return toml_of(self.tables())


def experiment_file(name: str) -> Path:
    """The file of an experiment: a path of the user's, else the name of a shipped one.

    `tvr/xml`, `tvr/xml.toml` and `experiments/tvr/xml.toml` name the same shipped experiment. Raises
    UsageError, which lists all names, if there is neither.
    """
    own = Path(name)
    if own.is_file():
        return own
    names = shipped()
    bare = name.removeprefix("experiments/").removesuffix(".toml")
    if bare in names:
        return names[bare]
    folders: dict[str, list[str]] = defaultdict(list)
    for file in names.values():
        folders[file.parent.name].append(file.stem)
    listed = "".join(f"\n  {folder}/: {', '.join(stems)}" for folder, stems in folders.items())
    raise UsageError(f"{name}: no such file, and no experiment of that name; shipped are:{listed}")


def shipped() -> dict[str, Path]:
    """The experiments that come with the package, by their names, such as `tvr/xml`."""
    return {f"{file.parent.name}/{file.stem}": file for file in sorted(FOLDER.glob("*/*.toml"))}


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """The experiment of a file, changed by settings such as "training.epochs=3".

    Raises FormatError for a file that cannot be read, and UsageError that names the file, the table, the
    key, its value and what is accepted.
    """
    file = Path(path)
    tables = set_values(_extended(file, ()), settings)
    released = tables.pop("released", {})
    if not isinstance(released, Mapping):
        raise UsageError(f"{file}: released is {released!r}; accepted: tables such as [released.decoding]")
    if value_of(tables.get("as_released", False), bool, f"{file} as_released"):
        # Settings of the command line win over those of [released], and so come again.
        tables = set_values(merged(tables, released), settings)
        tables.pop("released", None)
    return _experiment_of(tables, file)


def has_stages(path: str | Path) -> bool:
    """Whether a file names stages, and is no experiment itself. Raises FormatError for no TOML."""
    return "stages" in read_toml(Path(path))


def _extended(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    """The tables of a file over those of the file that it extends."""
    if path.resolve() in below:
        raise FormatError(path, "extends itself, by way of " + ", ".join(file.name for file in below))
    tables = read_toml(path)
    base = tables.pop("extends", None)
    if base is None:
        return tables
    if not isinstance(base, str):
        raise FormatError(path, "is no name of a file", field="extends", value=base)
    return merged(_extended(path.parent / base, (*below, path.resolve())), tables)


_TABLES: dict[str, Any] = {
    "data": DataSettings,
    "features": FeatureSettings,
    "training": TrainingSettings,
    "decoding": Decoding,
}
_TOP = {"title": str, "simulated": bool, "as_released": bool}
KEYS = (*_TOP, "extends", "model", "released", *_TABLES)
"""What an experiment may have at the top."""


def _experiment_of(tables: Mapping[str, Any], file: Path) -> Experiment:
    if "stages" in tables:
        raise UsageError(f"{file}: names stages, which only `whenabouts train` takes; name one of them here")
    refuse_unknown(tables, KEYS, str(file))
    top = {key: value_of(tables[key], kind, f"{file} {key}") for key, kind in _TOP.items() if key in tables}
    settings = {
        key: converted(_table(tables, key, file), kind, f"{file} [{key}]") for key, kind in _TABLES.items()
    }
    model = dict(_table(tables, "model", file))
    system = model.pop("system", None)
    if not isinstance(system, str):
        raise UsageError(f"{file} [model] system is missing; there are: {', '.join(model_names())}")
    hints = get_type_hints(_config_class(system, str(file)), include_extras=True)
    refuse_unknown(model, hints, f"{file} [model]")
    # Only the types: the `Config` itself is made when the widths of the features are there.
    model = {key: value_of(value, hints[key], f"{file} [model] {key}") for key, value in model.items()}
    return Experiment(system=system, model=model, name=str(file), **top, **settings)


def _table(tables: Mapping[str, Any], key: str, file: Path) -> Mapping[str, Any]:
    table = tables.get(key, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"{file} [{key}] is {table!r}; accepted: a table")
    return table


def _config_class(system: str, where: str) -> Any:
    refuse_unknown([system], model_names(), f"{where} [model] system")
    return importlib.import_module(f"whenabouts_systems.models.{system}").Config
