"""Read experiments: TOML files with every setting of a training, checked before any data is read.

| key | holds |
| --- | --- |
| `[data]`, `[features]`, `[training]` | the dataclasses below |
| `[model]` | the name of the system, and fields of its `Config` |
| `[decoding]` | `models.decoding.Decoding` |
| `extends` | another file, which this one changes |
| `[released]` | tables that replace others if `as_released = true` |

`whenabouts train` loads these files. `tables.converted` turns TOML into these classes and checks every value
against the type and range of its field (`models.settings`). `__post_init__` checks rules about several keys.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta

import whenabouts_systems
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_bench.evaluation.metrics import parse_metric
from whenabouts_bench.evaluation.protocols import find_protocol
from whenabouts_systems.models import model_names, module_of
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, LongVideos
from whenabouts_systems.models.parts.cross_directional import MeanOf
from whenabouts_systems.models.settings import NotNegative, Positive, Share, Size, defaults_of
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
"""The folder of the shipped experiments."""
STAGE = "stage:"
"""Prefix of the name of an earlier stage, in place of a folder (see `stages`)."""
TOKENIZER = "tokenizer:"
"""Prefix of the name of a tokenizer, in place of a file of token features."""


@dataclass(frozen=True, slots=True)
class NegativeSettings:
    """The table `[data.negatives]`: how hard negatives are drawn by the scores of a first stage (CroCs).

    Each epoch draws `videos` for each query (p'(v|q)) and `queries` for each video (p'(q|v)); 0 draws none.
    `share` says which negatives a query is compared with:

    - "query": those drawn for it, as published. A batch then holds up to `videos` more videos a query.
    - "batch": all negatives in the batch that are candidates for it. A batch then holds `videos` more videos
      in all, drawn for its queries in turn, and likewise `queries`. This is cheaper, for machines without a
      GPU. But a negative drawn for one query is random for the others: the more queries a batch has, the
      less p' matters.

    `mean`, `temperature` and `highest` (candidates a row; None: all) are as in
    `models.parts.cross_directional`.
    """

    videos: CountOrZero = 50
    queries: CountOrZero = 100
    share: Literal["query", "batch"] = "query"
    mean: MeanOf = "own"
    temperature: Positive = 1.0
    highest: Size | None = None


@dataclass(frozen=True, slots=True)
class RetrievedSettings:
    """The table `[data.retrieved]`: negatives from a retriever's ranked lists (PREM, CONQUER, SQuiDNet).

    A query's *own* videos are those of its moments.

    - `lists`: where the lists come from. A run file in any supported format; the folder of a trained
      retriever, which then ranks the training split; or "stage:NAME", the folder NAME beside this training's
      folder, as one command with stages writes it. "{seed}" stands for the seed.
    - `videos`: the number of negatives drawn for each query and epoch (PREM: 4 on TVR, 2 on DiDeMo; CONQUER:
      3); 0 draws none.
    - `depth`: draw from this many videos at the top of a list (PREM: 100).
    - `beyond_own` replaces `depth` (CONQUER: 1000): draw from the first (rank of the own video + this many),
      or from the whole list if it lacks the own video. If there are several own videos, the best rank counts.
    - `draws` "example" (the ranked SQuiDNet): each own video has its own draws, by its own rank; with
      `positives` "own" only this video is excluded.
    - `own_within` (CONQUER: 100): drop training examples whose own video ranks lower than this.
    - `cooccurrence` (SQuiDNet): queries with usual words (`whenabouts_bench.relevance.cooccurrence`) use
      `beyond_own_usual` in place of `beyond_own`. "queries" makes the table of co-occurrences from the
      training queries; any other value is the table's file.
    - `validation`: lists of the validation queries, given as for `lists`; a localizer is validated in their
      videos. "" validates in each query's given video (SVMR).
    - `validation_draws` (the ranked SQuiDNet's program: 40): validate in this many videos, drawn from these
      lists as for training, by the query's last moment, whose video is then never found. 0 takes the first
      videos instead.
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
                "retrieved.cooccurrence chooses which queries use beyond_own_usual in place of beyond_own, "
                "and retrieved.beyond_own is missing; give it, such as 500, or remove cooccurrence"
            )

    @property
    def needs_lists(self) -> bool:
        """Whether these settings draw from lists, or drop examples by them."""
        return self.videos > 0 or self.own_within is not None

    @property
    def description(self) -> str:
        """The number of videos that are drawn, and their source, in words for logs."""
        depth = f"{self.depth:,}"
        if self.beyond_own is not None:
            depth = f"(rank of its own video + {self.beyond_own:,})"
            if self.cooccurrence:
                depth = f"{depth[:-1]}, or {self.beyond_own_usual:,} for usual words)"
        return f"{self.videos} for each {self.draws} and epoch, of the first {depth} videos"

    @property
    def reach(self) -> int | None:
        """The number of videos of a list that can matter; None: all."""
        if self.beyond_own is None:
            return max(self.depth, self.own_within or 0)
        usual = self.beyond_own_usual if self.cooccurrence else 0
        return None if self.own_within is None else self.own_within + max(self.beyond_own, usual)


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The table `[data]`: the annotations, and how they become training examples.

    - `train`, `validation`, `test`: files of judgements in any supported format, or names of splits if
      `dataset` is given. Relative paths start at `folder`, else beside the features.
    - `pairs`: a file of potentially relevant pairs.
    - `weights`: the weight of each example. "similarity": of its query and its moment's caption (a pseudo
      training set, paper 004, C.1). "relevance": of its judgement.
    - `labels`: how seconds become clips; see `examples.spans_in_clips`.
    - `positives`: which videos are never a query's negatives. "judged": all that are judged relevant to it.
      "sentence": also those of queries with the same words. "similar": also those of queries that `pairs`
      lists as relevant to it (CroCs: sentences with a similarity of at least 0.9). "own": only its own.
    - `order` "by-length": batch videos of similar length together.
    - `batch_of` "queries": `training.batch_size` counts moments, each with its query. "windows": it counts
      queries, which come once for each of their videos, with all their windows there (the DETR programs).
      "videos": it counts videos, and each video brings all its queries.
    - `max_windows`: learn at most this many of a query's windows in a video, drawn anew each epoch (0: all;
      the DETR programs: 5).
    - `first_stage` (CroCs' second stage): the folder of an earlier training, or "stage:NAME". This training
      starts from its weights, and it chooses the hard negatives that `negatives` asks for.
    - `retrieved`: draws negatives from the lists of a retriever instead (PREM, CONQUER).
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
    batch_of: Literal["queries", "windows", "videos"] = "queries"
    max_windows: CountOrZero = 0
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
        """The path of a file that this table names: in `folder`, else beside the features."""
        return (Path(self.folder).expanduser() if self.folder else features) / Path(name).expanduser()


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """The table `[features]`: files in the features folder, and how their rows are prepared.

    - `query`: the file of token features; or "tokenizer:NAME" for a system with its own text encoder. NAME is
      a folder (tried below the features folder, then as given) or a hub's repository.
    - `streams`: stream name -> file; "{split}" in a name stands for train, validation or test.
    - `sentences`: the file of speech, for a system that reads the words of videos (HERO; see
      `features.sentences`).
    - `optional`: streams that a video may lack; it then has rows of zeros, which are counted.
    - `clip_seconds`: seconds of a row, if the files do not say.
    - `memory_mb`: the most features that are kept in memory, in MB; further ones are read when needed.
    - `normalise`: scale rows to unit length, in all streams, in none, or in those that it names.
    - `cache`: a folder for copies of the features that open faster; "" makes none.

    The other fields are as in `models.inputs.Inputs`.
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
                streams = ", ".join(self.streams) or "none"
                raise UsageError(f"{setting} names the stream {strange[0]!r}; there are {streams}")

    def normalises(self, stream: str) -> bool:
        """Whether rows of a stream are scaled to unit length."""
        return self.normalise if isinstance(self.normalise, bool) else stream in self.normalise

    @property
    def tokenizer(self) -> str:
        """The name of the tokenizer of queries; "" if queries are features."""
        return self.query.removeprefix(TOKENIZER) if self.query.startswith(TOKENIZER) else ""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """The table `[training]`: how long and how the system learns, and how its best weights are chosen.

    - `warmup`: the share of all steps in which the learning rate rises; `schedule`: its course afterwards.
    - `milestones`: epochs (from 0) at whose start the learning rate is multiplied by `milestone_factor`.
    - `rates`: prefix of parameter names -> factor of their learning rate.
    - `frozen`: prefix of parameter names -> the number of first epochs in which they do not learn.
    - `max_norm`: clip gradients to this norm; 0 does not clip. "bertadam" clips each tensor separately, the
      other optimizers clip the norm over all tensors.
    - `evaluate_every`: epochs between evaluations; may be a fraction.
    - `metric`: one metric, or the sum of several joined by `+`; higher is better.
    - `patience`: stop after more than this many evaluations in a row without a gain (None: never).
    - `protocol`: a protocol's name in `whenabouts evaluate` ("": the judgements choose).
    - `save_minutes`: how often the state is saved within an epoch.
    - `betas`: of the optimizer.
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
        # Refuse an unknown metric or protocol here, before any data is read.
        self.metrics  # noqa: B018
        if self.protocol:
            find_protocol(self.protocol)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics whose sum chooses the best weights."""
        return tuple(parse_metric(part).name for part in self.metric.split("+"))


_OF_FEATURES = {"streams": "widths", "query_width": "query.width", "text_encoder": "tokenizer"} | {
    name: name for name in ("max_clips", "max_tokens", "clips_per_cell")
}
"""Fields of a system's `Config` whose values come from its features, and where `Inputs` has them."""


@dataclass(frozen=True)
class Experiment:
    """Every setting of a training. `model` holds fields of the `Config` of `system`.

    `simulated` marks simulated features; every table and card then says so.
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
    """The path of the file, for messages."""

    def config(self, inputs: Inputs) -> Any:
        """The `Config` of the system for the given inputs.

        A `Config` that has one of the fields `_OF_FEATURES` gets its value from `inputs`.

        Raises UsageError for settings that the `Config` refuses, for a missing file of pairs if the system
        `uses_pairs`, for weights that it ignores, if `model` contradicts the features, and if the features
        need cells of several clips or a tokenizer and the system has no such field.
        """
        of_features = {name: attrgetter(source)(inputs) for name, source in _OF_FEATURES.items()}
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
        if getattr(config, "ignores_weights", False) and self.data.weights != "none":
            raise UsageError(
                f"{self.name} [data] weights is {self.data.weights!r}, but {self.system} does not weight "
                "examples; accepted: 'none'"
            )
        return config

    def _refuse_other_sizes(self, given: Mapping[str, Any]) -> None:
        """Raise UsageError if [model] contradicts the features; position tables may be longer."""
        for name, of_features in given.items():
            set_value = self.model.get(name, of_features)
            may_be_longer = name in ("max_clips", "max_tokens")
            if (set_value < of_features) if may_be_longer else (set_value != of_features):
                raise UsageError(
                    f"{self.name} [model] {name} is {set_value!r}, but the features and [features] say "
                    f"{of_features!r}; leave it out to use that value"
                )

    def check_negatives(self, config: Any) -> None:
        """Raise UsageError if the system `uses_negatives` and [data] has no way to choose them."""
        chosen = self.data.first_stage or self.data.retrieved.videos
        if getattr(config, "uses_negatives", False) and not chosen:
            raise UsageError(
                f"{self.name} [data] first_stage, the training that finds the hard negatives, is missing; "
                "give its folder with --set data.first_stage=RUN"
            )

    def with_seed(self, seed: int) -> Experiment:
        """The same experiment with another seed. Raises UsageError for a seed out of range."""
        checked = value_of(seed, Seed, "seed")
        return dataclasses.replace(self, training=dataclasses.replace(self.training, seed=checked))

    def with_data(self, folder: str | Path) -> Experiment:
        """The same experiment with its annotations in `folder`. Raises UsageError for a missing folder."""
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise UsageError(f"{folder}: not a folder; give the folder of the annotations (--data)")
        return dataclasses.replace(self, data=dataclasses.replace(self.data, folder=str(path)))

    def tables(self) -> dict[str, Any]:
        """All settings, defaults included, as `load_experiment` reads them."""
        of_system = defaults_of(_config_class(self.system, self.name))
        defaults = {name: value for name, value in of_system.items() if name not in _OF_FEATURES}
        return {
            **{key: getattr(self, key) for key in _TOP},
            "data": dataclasses.asdict(self.data),
            "features": dataclasses.asdict(self.features),
            "model": {"system": self.system, **defaults, **self.model},
            "training": dataclasses.asdict(self.training),
            "decoding": self.decoding.to_json(),
        }

    def to_toml(self) -> str:
        """All settings, defaults included, as a file that `load_experiment` reads."""
        return toml_of(self.tables())


def experiment_file(name: str) -> Path:
    """The file of an experiment, given by its path or by the name of a shipped one.

    `tvr/xml`, `tvr/xml.toml` and `experiments/tvr/xml.toml` name the same shipped experiment. Raises
    UsageError, which lists all names, if there is neither.
    """
    path = Path(name)
    if path.is_file():
        return path
    names = shipped()
    bare = name.removeprefix("experiments/").removesuffix(".toml")
    if bare in names:
        return names[bare]
    folders: dict[str, list[str]] = defaultdict(list)
    for file in names.values():
        folders[file.parent.name].append(file.stem)
    listed = "; ".join(f"{folder}/: {', '.join(stems)}" for folder, stems in folders.items())
    raise UsageError(f"{name}: neither a file nor a shipped experiment; shipped are {listed}")


def shipped() -> dict[str, Path]:
    """Name, such as `tvr/xml` -> file of the experiments that come with the package."""
    return {f"{file.parent.name}/{file.stem}": file for file in sorted(FOLDER.glob("*/*.toml"))}


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """Load an experiment from a file, changed by settings such as "training.epochs=3".

    Raises FormatError for a file that cannot be read, and UsageError for a wrong value; its message names the
    file, the table, the key, the value and what is accepted.
    """
    file = Path(path)
    tables = set_values(_extended(file, ()), settings)
    released = tables.pop("released", {})
    if not isinstance(released, Mapping):
        raise UsageError(f"{file}: released is {released!r}; accepted: tables such as [released.decoding]")
    if value_of(tables.get("as_released", False), bool, f"{file} as_released"):
        # Apply the command line's settings again: they win over those of [released].
        tables = set_values(merged(tables, released), settings)
        tables.pop("released", None)
    return _experiment_of(tables, file)


def has_stages(path: str | Path) -> bool:
    """Whether a file lists stages rather than one experiment. Raises FormatError if it is not TOML."""
    return "stages" in read_toml(Path(path))


def _extended(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    """The tables of a file, merged over those of the file that it extends. `below` are its extenders."""
    if path.resolve() in below:
        raise FormatError(path, "extends itself through " + ", ".join(file.name for file in below))
    tables = read_toml(path)
    base = tables.pop("extends", None)
    if base is None:
        return tables
    if not isinstance(base, str):
        raise FormatError(path, "is not a file name", field="extends", value=base)
    return merged(_extended(path.parent / base, (*below, path.resolve())), tables)


_TABLES: dict[str, Any] = {
    "data": DataSettings,
    "features": FeatureSettings,
    "training": TrainingSettings,
    "decoding": Decoding,
}
_TOP = {"title": str, "simulated": bool, "as_released": bool}
KEYS = (*_TOP, "extends", "model", "released", *_TABLES)
"""The top-level keys of an experiment."""


def _experiment_of(tables: Mapping[str, Any], file: Path) -> Experiment:
    if "stages" in tables:
        raise UsageError(f"{file}: lists stages, which only `whenabouts train` takes; give one stage's file")
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
    # This checks only types: the `Config` is made later, when the widths of the features are known.
    model = {key: value_of(value, hints[key], f"{file} [model] {key}") for key, value in model.items()}
    return Experiment(system=system, model=model, name=str(file), **top, **settings)


def _table(tables: Mapping[str, Any], key: str, file: Path) -> Mapping[str, Any]:
    table = tables.get(key, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"{file} [{key}] is {table!r}; accepted: a table")
    return table


def _config_class(system: str, where: str) -> Any:
    refuse_unknown([system], model_names(), f"{where} [model] system")
    kind = module_of(system).Config
    names = set(getattr(kind, "__dataclass_fields__", ()))
    if "streams" not in names or names.isdisjoint(("query_width", "text_encoder")):
        raise UsageError(
            f"{where}: the Config of {system} has the fields {', '.join(sorted(names)) or '(none)'}; it "
            "needs streams and query_width (or text_encoder), which training fills from the features"
        )
    return kind
