"""Open a retriever's ranked lists of videos for a split: a run file's, or made by a trained retriever.

A training draws negatives from the lists of the training split, and validates a localizer in the videos of
the validation lists.

A trained retriever ranks the same queries and videos, but reads the feature files of its own experiment, from
the same folder. If the videos have many clips, their encodings are stored in a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_bench import formats
from whenabouts_bench.formats.runs import RunSource
from whenabouts_bench.relevance.cooccurrence import Cooccurrence, words_of
from whenabouts_systems.models.staged import SYSTEM, stages_of
from whenabouts_systems.models.trained import CONFIG, Trained
from whenabouts_systems.ranking.candidates import RankedVideos, can_retrieve
from whenabouts_systems.ranking.ranker import Ranker
from whenabouts_systems.ranking.split import SplitRun, encode_split
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.devices import DeviceSetup
from whenabouts_systems.training.examples import Examples
from whenabouts_systems.training.experiment import STAGE, DataSettings, Experiment, load_experiment
from whenabouts_systems.training.retrieval_negatives import RetrievalNegatives, drawn_candidates
from whenabouts_systems.training.run_folder import EXPERIMENT

OF_QUERIES = "queries"
"""The value of `cooccurrence` that makes the table from the training queries."""
_NAMED = {
    "lists": "a run file, or the folder of a trained retriever",
    "validation": "a run file of the validation queries, or the folder of a trained retriever",
    "cooccurrence": f'a file of nouns and verbs, or "{OF_QUERIES}" for those of the training queries',
}
_CLIPS_IN_MEMORY = 1 << 18
"""The most clips whose encodings stay in memory: some 1 GB at the papers' widths; more go to disk."""


def choose_negatives(
    experiment: Experiment,
    opened: ExperimentData,
    run: str | Path,
    setup: DeviceSetup,
    log: Callable[[str], None],
) -> None:
    """Give a training's examples negatives from the lists that its experiment names.

    `run` is the folder of the training. `log` gets a line before the lists are read or made, which may take
    long. Examples whose own video ranks too low are dropped. Raises UsageError if no lists are named, and as
    `opened_lists` and `RetrievalNegatives` do.
    """
    settings, examples = experiment.data.retrieved, opened.split("train")
    check_lists(experiment, opened.folder)
    with seen_folder(settings.lists, run, experiment.training.seed, setup) as place:
        log(f"{'negatives':12}{settings.description} in the lists of {place}")
        usual = usual_queries(experiment.data, opened, log)
        with opened_lists(place, experiment.data, opened, settings.reach, setup.device) as source:
            negatives = RetrievalNegatives(source, examples, settings, experiment.training.seed, place, usual)
    examples.note(negatives.counts)
    if settings.own_within is not None:
        why = f"examples are skipped: their own video is not among the first {settings.own_within} of a list"
        examples.leave_out(~negatives.within, why)
        if not len(examples):
            raise UsageError(
                f"{place}: no query of {examples.name} has its own video among the first "
                f"{settings.own_within}, so there is no example to train on; raise data.retrieved.own_within"
            )
    if settings.videos:
        examples.choose_negatives(negatives)


def lists_of_validation(
    experiment: Experiment,
    opened: ExperimentData,
    run: str | Path,
    setup: DeviceSetup,
    log: Callable[[str], None],
) -> RankedVideos:
    """The lists of videos in which a validation searches for moments.

    Raises UsageError for lists that lack a query, and as `opened_lists` does.
    """
    data, place = experiment.data, experiment.data.retrieved.validation
    with seen_folder(place, run, experiment.training.seed, setup) as lists:
        draws, depth = data.retrieved.validation_draws, experiment.decoding.top_videos
        which = f"{draws} videos drawn from" if draws else f"the first {depth} videos of"
        log(f"{'validation':12}in {which} the lists of {lists}")
        reach = data.retrieved.reach if draws else depth
        with opened_lists(lists, data, opened, reach, setup.device, "validation") as source:
            if draws:
                usual, seed = usual_queries(data, opened, log, "validation"), experiment.training.seed
                ranked = drawn_candidates(source, opened.split("validation"), data.retrieved, seed, usual)
            else:
                ranked = RankedVideos.of(source)
    lacking = [query.id for query in opened.split("validation").queries if query.id not in ranked.lists]
    if lacking:
        raise UsageError(
            f"{lists}: has no videos for query {lacking[0]!r} of validation (and {len(lacking) - 1:,} "
            "others); rank videos for every query of that split, such as with `whenabouts run --task vr`"
        )
    return ranked


def usual_queries(
    data: DataSettings, opened: ExperimentData, log: Callable[[str], None], split: str = "train"
) -> NDArray[np.bool_] | None:
    """(Q,) which queries of a split have usual words (`Cooccurrence.is_usual`); None if not asked for.

    A new table is made from the training queries. Raises UsageError for a missing table, FormatError for a
    file that is not a table, and PhrasesUnavailable without a tagger.
    """
    named, examples = data.retrieved.cooccurrence, opened.split(split)
    if not named:
        return None
    made = named == OF_QUERIES
    table = None if made else Cooccurrence.read(_path_of(named, data, opened.folder, "cooccurrence"))
    log(f"{'':12}usual words of queries: from {'training queries' if table is None else named}")
    rows, texts = _queries_of(examples)
    of_training = texts if table is not None or split == "train" else _queries_of(opened.split("train"))[1]
    words = words_of([*texts, *of_training])
    table = table or Cooccurrence.of(words[text] for text in of_training)
    usual = np.zeros(len(examples.queries), bool)
    usual[rows] = [table.is_usual(words[text]) for text in texts]
    examples.note({"queries have usual words": int(usual.sum())})
    return usual


def _queries_of(examples: Examples) -> tuple[NDArray[np.int64], list[str]]:
    """The rows and texts of the queries that have an example."""
    rows = np.unique(examples.query)
    return rows, [examples.queries[row].text for row in rows.tolist()]


def check_lists(experiment: Experiment, features: str | Path) -> None:
    """Raise UsageError if an experiment needs lists and names none, or a place that does not exist."""
    data, settings = experiment.data, experiment.data.retrieved
    if settings.needs_lists and not settings.lists:
        raise UsageError(
            f"{experiment.name} [data.retrieved] lists is missing: negatives are drawn from the lists of a "
            "retriever. Give a run file or the folder of a trained retriever with --set "
            "data.retrieved.lists=RUN, or train without lists with --set data.retrieved.videos=0 --set "
            "data.retrieved.own_within=none"
        )
    if settings.needs_lists and not settings.lists.startswith(STAGE):
        _path_of(settings.lists.replace("{seed}", str(experiment.training.seed)), data, Path(features))
    if settings.validation and not settings.validation.startswith(STAGE):
        named = settings.validation.replace("{seed}", str(experiment.training.seed))
        _path_of(named, data, Path(features), "validation")
    if settings.cooccurrence not in ("", OF_QUERIES):
        _path_of(settings.cooccurrence, data, Path(features), "cooccurrence")


@contextmanager
def seen_folder(named: str, run: str | Path, seed: int, setup: DeviceSetup) -> Iterator[str]:
    """The path as in `folder_of`, readable by every process of a training.

    Process 0 wrote the folder of a stage, which may be on a disk that other processes cannot read.
    """
    place = setup.by_first(lambda: folder_of(named, run, seed))
    if not named.startswith(STAGE):
        yield place
        return
    with setup.seen(Path(place)) as here:
        yield str(here)


def folder_of(named: str, run: str | Path, seed: int) -> str:
    """The path of a place that [data] names, with "{seed}" and "stage:NAME" replaced.

    The folder of a stage lies beside `run`, the folder of this training. Raises UsageError if it is missing.
    """
    named = named.replace("{seed}", str(seed))
    if not named.startswith(STAGE):
        return named
    place = Path(run).parent / named.removeprefix(STAGE)
    if not (place / CONFIG).is_file():
        raise UsageError(
            f"{named!r} is the folder {place}, which holds no trained system; train the stages together (an "
            "experiment with `stages`), or give the folder of a trained system with --set "
            "data.retrieved.lists=RUN (or data.first_stage=RUN)"
        )
    return str(place)


@contextmanager
def opened_lists(
    place: str,
    data: DataSettings,
    opened: ExperimentData,
    depth: int | None,
    device: torch.device | str = "cpu",
    split: str = "train",
) -> Iterator[RunSource]:
    """Ranked videos for the queries of a split, from a run file or made by a trained retriever.

    A trained retriever lists at most `depth` videos (None: all). `place` is relative to the current folder,
    or else to that of the annotations. Raises UsageError for a missing place, for a system that does not
    choose videos or has no experiment to name its feature files, and as `ExperimentData.open` does.
    """
    path = _path_of(place, data, opened.folder, "lists" if split == "train" else split)
    if not (path / CONFIG).is_file() and not (path / SYSTEM).is_file():
        yield formats.open_run(path)
        return
    retriever, localizer = stages_of(path)
    with _ranked(Path(retriever or localizer), data, opened.folder, depth, device, split) as source:
        yield source


def _path_of(place: str, data: DataSettings, features: Path, setting: str = "lists") -> Path:
    """The path of a place, as given or beside the annotations. Raises UsageError if neither exists."""
    paths = list(dict.fromkeys([Path(place).expanduser(), data.beside(features.expanduser(), place)]))
    existing = next((path for path in paths if path.exists()), None)
    if existing is None:
        raise UsageError(
            f"[data.retrieved] {setting} is {place!r}: there is no {' and no '.join(map(str, paths))}; "
            f"accepted: {_NAMED[setting]}"
        )
    return existing


@contextmanager
def _ranked(
    place: Path, data: DataSettings, features: Path, depth: int | None, device: torch.device | str, split: str
) -> Iterator[RunSource]:
    """A run of a trained system that ranks the videos of a split for its queries."""
    trained = Trained.from_pretrained(place)
    if not can_retrieve(trained.model):
        raise UsageError(f"{place}: {trained.system} does not choose videos; name the folder of a retriever")
    if not (place / EXPERIMENT).is_file():
        raise UsageError(
            f"{place}: has no {EXPERIMENT}, which names its feature files; rank the split with "
            f"`whenabouts run --split {split} --task vr` and give that file"
        )
    retriever = load_experiment(place / EXPERIMENT)
    settings = DataSettings(
        train=data.train,
        validation=data.validation,
        dataset=data.dataset,
        folder=data.folder,
        labels=retriever.data.labels,
        positives="own",
    )
    # The retriever may come from a stranger, so its experiment must not choose where a cache is made.
    named = replace(retriever.features, cache="")
    trained.model.to(device)
    with (
        ExperimentData.open(settings, named, features, inputs=trained.inputs, splits=(split,)) as opened,
        tempfile.TemporaryDirectory(prefix="whenabouts-lists-") as aside,
    ):
        examples = opened.split(split)
        is_small = int(examples.clips.sum()) <= _CLIPS_IN_MEMORY
        corpus = encode_split(trained, examples, folder=None if is_small else Path(aside) / "corpus")
        count = len(corpus) if depth is None else min(depth, len(corpus))
        decoding = replace(trained.decoding, top_videos=count, spans_per_query=1, nms=None)
        yield SplitRun(Ranker(trained, corpus, decoding=decoding), examples, ("VR",))
