"""An experiment: one short TOML file with every setting of a training, checked before anything is read.

Tables: `[data]`, `[features]`, `[training]` (see `settings`), `[model]` (the system and the fields of its
`Config`), `[decoding]` (`models.decoding.Decoding`). `extends` names a file that this one changes.
`[released]` holds the tables that are different where `as_released = true`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from whenabouts.formats.files import FormatError
from whenabouts.models import model_names
from whenabouts.models.decoding import Decoding
from whenabouts.models.inputs import Inputs
from whenabouts.research.training.settings import DataSettings, FeatureSettings, Seed, TrainingSettings
from whenabouts.research.training.tables import (
    converted,
    merged,
    read_toml,
    refuse_unknown,
    set_values,
    toml_of,
    value_of,
)
from whenabouts.types import UsageError

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
            "title": self.title,
            "simulated": self.simulated,
            "as_released": self.as_released,
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
    return importlib.import_module(f"whenabouts.models.{system}").Config
