"""An experiment: one short TOML file with every setting of a training, checked before anything is read.

Tables: `[data]`, `[features]` (see `material`), `[model]` (the system and the fields of its `Config`),
`[training]`, `[decoding]` (`models.decoding.Decoding`). `extends` names a file that this one changes.
`[released]` holds the tables that are different where `as_released = true`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from whenabouts.evaluation.metrics import parse_metric
from whenabouts.evaluation.protocols import find_protocol
from whenabouts.formats.files import FormatError
from whenabouts.models import model_names
from whenabouts.models.decoding import Decoding
from whenabouts.models.inputs import Inputs
from whenabouts.training.data import DataSettings, FeatureSettings
from whenabouts.training.schedule import SCHEDULES
from whenabouts.training.settings import fitted, made_of, merged, read_toml, set_values, toml_of, unknown
from whenabouts.types import UsageError

_OF_FEATURES = {"streams", "query_width", "max_clips", "max_tokens", "clips_per_cell", "text_encoder"}
"""Fields of a system's `Config` that its features tell."""

_ABOVE_ZERO = ("epochs", "batch_size", "learning_rate", "evaluate_every", "save_minutes", "milestone_factor")


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

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    warmup: float = 0.01
    schedule: Literal["linear", "constant"] = "linear"
    optimizer: Literal["bertadam", "adamw"] = "bertadam"
    max_norm: float = 1.0
    seed: int = 2018
    evaluate_every: float = 1.0
    metric: str = "VCMR R@1,IoU=0.5 + VCMR R@1,IoU=0.7"
    protocol: str = ""
    patience: int | None = 10
    precision: Literal["fp32", "bf16"] = "fp32"
    save_minutes: float = 10.0
    rates: Mapping[str, float] = field(default_factory=dict)
    frozen: Mapping[str, int] = field(default_factory=dict)
    milestones: tuple[int, ...] = ()
    milestone_factor: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.999)

    def __post_init__(self) -> None:
        for name in _ABOVE_ZERO:
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} is {getattr(self, name)!r}; accepted: a number above 0")
        for name in ("weight_decay", "max_norm"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"{name} is {getattr(self, name)!r}; accepted: 0 or more")
        for prefix, rate in self.rates.items():
            if not 0 < rate < float("inf"):
                raise UsageError(f"rates.{prefix} is {rate!r}; accepted: a number above 0")
        if len(self.betas) != 2 or not all(0 <= one < 1 for one in self.betas):
            raise UsageError(f"betas is {list(self.betas)}; accepted: two numbers from 0 to below 1")
        if min((*self.milestones, *self.frozen.values()), default=0) < 0:
            raise UsageError("milestones and frozen count epochs; accepted: whole numbers, 0 or more")
        if not 0 <= self.warmup < 1:
            raise UsageError(f"warmup is {self.warmup!r}; accepted: a share from 0 to below 1")
        if self.patience is not None and self.patience < 1:
            raise UsageError(f'patience is {self.patience!r}; accepted: a whole number above 0, or "none"')
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed is {self.seed!r}; accepted: a whole number from 0 to 4294967295")
        self.metrics  # noqa: B018 - a metric that there is not is told before anything is read
        if self.protocol:
            find_protocol(self.protocol)
        assert self.schedule in SCHEDULES

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics whose sum is the measure of the best."""
        return tuple(parse_metric(part).name for part in self.metric.split("+"))


@dataclass(frozen=True)
class Experiment:
    """Everything that a training is told. `model` holds fields of the `Config` of `system`.

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
        told = {
            "streams": inputs.widths,
            "query_width": inputs.query.width,
            "max_clips": inputs.max_clips,
            "max_tokens": inputs.max_tokens,
            "clips_per_cell": inputs.clips_per_cell,
            "text_encoder": inputs.tokenizer,
        }
        assert told.keys() == _OF_FEATURES
        kind = _config_class(self.system, self.name)
        asked = {one.name for one in dataclasses.fields(kind)}
        for name, usual in (("clips_per_cell", 1), ("text_encoder", "")):
            if name not in asked and told[name] != usual:
                raise UsageError(
                    f"{self.name} [features] asks for {name} = {told[name]!r}; "
                    f"{self.system} knows no such thing"
                )
        given = {name: value for name, value in told.items() if name in asked}
        self._refuse_other_sizes(given)
        made = made_of(kind, {**given, **self.model}, f"{self.name} [model]")
        if getattr(made, "uses_pairs", False) and not self.data.pairs:
            raise UsageError(
                f"{self.name} [data] pairs is missing: the losses of [model] compare relevant pairs; "
                "make them with `whenabouts relevance pairs`"
            )
        return made

    def _refuse_other_sizes(self, told: Mapping[str, Any]) -> None:
        """UsageError where [model] says of the features what they are not; tables of places may be longer."""
        for name, of_features in told.items():
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
        """The same with another seed."""
        return dataclasses.replace(self, training=dataclasses.replace(self.training, seed=seed))

    def with_data(self, folder: str | Path) -> Experiment:
        """The same with its annotations in that folder. Raises UsageError where there is no such folder."""
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise UsageError(f"{folder}: is no folder; give the folder of the annotations (--data)")
        return dataclasses.replace(self, data=dataclasses.replace(self.data, folder=str(path)))

    def tables(self) -> dict[str, Any]:
        """All settings, defaults included, as `load_experiment` reads them."""
        return {
            "title": self.title,
            "simulated": self.simulated,
            "as_released": self.as_released,
            "data": dataclasses.asdict(self.data),
            "features": _plain(self.features),
            "model": {"system": self.system, **self._usual(), **self.model},
            "training": dataclasses.asdict(self.training),
            "decoding": self.decoding.to_json(),
        }

    def _usual(self) -> dict[str, Any]:
        """What a model has that is told nothing, but for what its features tell."""
        made = {
            one.name: one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
            for one in dataclasses.fields(_config_class(self.system, self.name))
            if one.name not in _OF_FEATURES
        }
        return {name: _unfrozen(value) for name, value in made.items() if value is not dataclasses.MISSING}

    def to_toml(self) -> str:
        """All settings, defaults included, as a file that `load_experiment` reads."""
        return toml_of(self.tables())


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """The experiment of a file, changed by settings such as "training.epochs=3".

    Raises FormatError for a file that cannot be read, and UsageError that names the file, the table, the
    key, what was found and what there is.
    """
    place = Path(path)
    tables = set_values(_extended(place, ()), settings)
    released = tables.pop("released", {})
    if not isinstance(released, Mapping):
        raise UsageError(f"{place}: released is {released!r}; accepted: tables such as [released.decoding]")
    if fitted(tables.get("as_released", False), bool, f"{place} as_released"):
        tables = set_values(merged(tables, released), settings)
        tables.pop("released", None)
    return _experiment(tables, place)


def _extended(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    """The tables of a file over those of the file that it extends."""
    if path.resolve() in below:
        raise FormatError(path, "extends itself, by way of " + ", ".join(one.name for one in below))
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
_PLAIN = {"title": str, "simulated": bool, "as_released": bool}
KEYS = (*_PLAIN, "extends", "model", "released", *_TABLES)
"""What an experiment may have at the top."""


def _experiment(tables: Mapping[str, Any], path: Path) -> Experiment:
    if "stages" in tables:
        raise UsageError(f"{path}: names stages, which only `whenabouts train` takes; name one of them here")
    for key in tables:
        if key not in KEYS:
            raise unknown(str(path), key, KEYS)
    plain = {key: fitted(tables[key], kind, f"{path} {key}") for key, kind in _PLAIN.items() if key in tables}
    made = {
        key: made_of(kind, _table(tables.get(key, {}), f"{path} [{key}]"), f"{path} [{key}]")
        for key, kind in _TABLES.items()
    }
    model = dict(_table(tables.get("model", {}), f"{path} [model]"))
    system = model.pop("system", None)
    if not isinstance(system, str):
        raise UsageError(f"{path} [model] system is missing; there are: {', '.join(model_names())}")
    model = _checked(model, _config_class(system, str(path)), f"{path} [model]")
    return Experiment(system=system, model=model, name=str(path), **plain, **made)


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} is {value!r}; accepted: a table")
    return value


def _checked(model: Mapping[str, Any], kind: Any, where: str) -> dict[str, Any]:
    """The settings of a model, each of the type that its `Config` has."""
    hints = get_type_hints(kind)
    names = [one.name for one in dataclasses.fields(kind)]
    for key in model:
        if key not in names:
            raise unknown(where, key, names)
    return {key: fitted(value, hints[key], f"{where} {key}") for key, value in model.items()}


def _config_class(system: str, where: str) -> Any:
    if system not in model_names():
        raise unknown(f"{where} [model] system", system, model_names())
    return importlib.import_module(f"whenabouts.models.{system}").Config


def _plain(features: FeatureSettings) -> dict[str, Any]:
    return {one.name: _unfrozen(getattr(features, one.name)) for one in dataclasses.fields(features)}


def _unfrozen(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
