from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.studies import load_studies
from tests.plugin_system import declared_system

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models import moment_detr, new_model
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.training.experiment import FOLDER as EXPERIMENTS
from whenabouts_systems.training.experiment import Experiment, has_stages, load_experiment
from whenabouts_systems.training.stages import load_stages

FILES = sorted(EXPERIMENTS.rglob("*.toml"))
STAGED = [path for path in FILES if has_stages(path)]
SHIPPED = [path for path in FILES if path not in STAGED]


def inputs_for(experiment: Experiment) -> Inputs:
    """Inputs as the features would make them, with narrow streams."""
    told = experiment.features
    return Inputs(
        StreamInput(12),
        {name: StreamInput(10) for name in told.streams},
        max_clips=told.max_clips,
        max_tokens=told.max_tokens,
        tef=told.tef,
        tokenizer=told.tokenizer,
        reads_sentences=bool(told.sentences),
    )


@pytest.mark.slow
def test_every_shipped_experiment_and_row_of_a_study_loads_and_fits_its_system() -> None:
    rows = {
        f"{study.name} {system.name}": (system.experiment, system.settings)
        for study in load_studies().values()
        for system in study.systems
    }
    shipped = {str(path.relative_to(EXPERIMENTS)): (path, ()) for path in SHIPPED}
    for name, (path, settings) in {**shipped, **rows}.items():
        for released in (False, True):
            experiment = load_experiment(path, [*settings, *(["as_released=true"] if released else [])])
            config = experiment.config(inputs_for(experiment))
            # A system without a released program has no such setting.
            assert getattr(config, "as_released", released) is released, name
            assert experiment.data.labels == "inclusive" or released, name
            assert experiment.decoding.ends == "inclusive" or released, name
            assert experiment.title, name
            is_simulated = "simulated" in path.parent.name or "simulated=true" in settings
            assert experiment.simulated == is_simulated, name


@pytest.mark.slow
@pytest.mark.parametrize("released", [False, True])
def test_a_model_of_every_system_that_is_shipped_is_built(released: bool) -> None:
    systems: dict[str, Experiment] = {}
    for path in SHIPPED:
        experiment = load_experiment(path, [f"as_released={str(released).lower()}"])
        systems.setdefault(experiment.system, experiment)
    for system, experiment in systems.items():
        heads = experiment.model.get("heads", 4)
        small = {"hidden": 4 * heads} if "hidden" in experiment.model else {}
        experiment = replace(experiment, model={**experiment.model, **small})
        assert new_model(system, experiment.config(inputs_for(experiment)))


def test_every_shipped_file_of_stages_loads_and_its_last_stage_builds_on_another() -> None:
    for path in STAGED:
        staged = load_stages(path)
        *_, last = staged.stages.values()
        assert staged.title
        assert len(staged.stages) == 2
        assert last.data.first_stage == "stage:crocs_first" or staged.retriever in staged.stages
        assert len({stage.data.train for stage in staged.stages.values()}) == 1
        assert len({stage.data.validation for stage in staged.stages.values()}) == 1


def test_a_row_of_a_study_changes_what_it_says_and_names_what_comes_before() -> None:
    studies = load_studies()
    xml, *_, xml_pr_c1 = studies["simulated-charades"].systems[:5]
    base, changed = (load_experiment(row.experiment, row.settings) for row in (xml, xml_pr_c1))
    assert changed.data == replace(base.data, pairs="charades_pairs_np-vp_0.7.safetensors")
    assert changed.model.items() - base.model.items() == {
        *(("lambda_rel_neg_vr", 1.0), ("lambda_pos_rel_vr", 1.0), ("lambda_nll_2", 1.0)),
        ("confidence_is_one", True),
    }
    assert (changed.training, changed.features) == (base.training, base.features)
    crocs = studies["charades-negatives"].systems[-1]
    assert crocs.after == "crocs_first"
    assert "data.first_stage=out/crocs_first-3" in crocs.settings_in(Path("out"), "3")
    # A row that comes after another than the row it extends.
    conquer = next(row for row in studies["two-stages"].systems if row.name == "conquer_xml")
    assert conquer.after == "xml"
    assert conquer.settings_in(Path("out"), "3")[-2:] == ["data.retrieved.lists=out/xml-3", "model.alpha=20"]


@pytest.mark.parametrize("name", ["charades-sta", "activitynet", "tacos"])
def test_studies_of_full_size_have_all_of_table_2_and_its_stopping_rule(name: str) -> None:
    rows = {row.name: row for row in load_studies()[name].systems}
    assert set(rows) == {"mmn", "cet", "bet", "g2l", "crocs_first", "crocs"}
    for row in rows.values():
        metrics = load_experiment(row.experiment, row.settings).training.metrics
        assert metrics == tuple(f"SVMR R@{k},IoU={iou}" for k in (1, 5) for iou in (0.3, 0.5, 0.7))


@pytest.mark.parametrize(
    ("name", "videos", "queries", "margin", "rate"),
    [
        ("charades-sta", 50, 100, 0.4, 1e-4),
        ("activitynet", 100, 200, 0.3, 8e-4),
        ("tacos", 5, 100, 0.1, 1.5e-3),
    ],
)
def test_studies_of_full_size_train_crocs_as_its_paper_says(
    name: str, videos: int, queries: int, margin: float, rate: float
) -> None:
    """Paper 002, section 7.1 and appendix "Hyperparameter Settings"; then a tenth of the rate."""
    rows = {row.name: row for row in load_studies()[name].systems}
    first, second = (
        load_experiment(rows[row].experiment, rows[row].settings) for row in ("crocs_first", "crocs")
    )
    assert (first.model["stage"], second.model["stage"]) == ("first", "second")
    assert (second.data.negatives.videos, second.data.negatives.queries) == (videos, queries)
    assert second.data.negatives.mean == "own" and second.data.negatives.temperature == 1.0
    assert first.training.learning_rate == pytest.approx(rate)
    assert second.training.learning_rate == pytest.approx(rate / 10)
    for stage in (first, second):
        assert stage.model["margin"] == margin
        assert stage.data.positives == "similar" and stage.data.pairs.endswith("_0.9.safetensors")


STUDY = """
measure = "pools-only"
shown = []
set = ["training.epochs=3"]
[rows]
mmn = { extends = "simulated_charades/mmn.toml" }
"""


def test_a_row_after_a_retriever_is_a_training_of_another_row_that_may_be_of_another_study(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.toml").write_text(STUDY)
    late = STUDY.replace("simulated_charades/mmn.toml", "a/mmn").replace("=3", "=4")
    first = 'ms_sl = { extends = "simulated_charades/ms_sl.toml" }\n'
    after = 'mmn_5 = { extends = "mmn", retriever = "ms_sl", top_videos = 5 }\n'
    (tmp_path / "a-b.toml").write_text(late + first + after)
    mmn, ms_sl, mmn_5 = load_studies(tmp_path)["a-b"].systems
    assert load_experiment(mmn.experiment, mmn.settings).training.epochs == 3
    assert load_experiment(ms_sl.experiment, ms_sl.settings).training.epochs == 4
    assert (mmn.trained, mmn.needs) == ("mmn", ())
    assert (mmn_5.trained, mmn_5.needs, mmn_5.top_videos) == ("mmn", ("mmn", "ms_sl"), 5)
    (tmp_path / "a-b.toml").write_text(late + after + first)
    with pytest.raises(ValueError, match="mmn_5: its retriever"):
        load_studies(tmp_path)


CELLS_AND_TEXT = {"clips_per_cell", "text_encoder"}


def test_video_rows_of_tvr_stay_as_they_are_released_and_subtitles_do_not() -> None:
    """Their two parts are of unit length each; the released trainings leave them so."""
    for system in ("xml", "reloclnet"):
        features = load_experiment(EXPERIMENTS / "tvr" / f"{system}.toml").features
        assert {name: features.normalises(name) for name in features.streams} == {"video": False, "sub": True}


def written(tmp_path: Path, text: str, name: str = "a.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


SMALL = '[model]\nsystem = "xml"\n'


WRONG_FILES = {
    SMALL + "[training]\nepoch = 3": r"a\.toml \[training\]: there is no 'epoch'; did you mean 'epochs'\?",
    SMALL + "[trainings]\nepochs = 3": r"there is no 'trainings'; did you mean 'training'\?",
    SMALL + "hiden = 3": r"a\.toml \[model\]: there is no 'hiden'; did you mean 'hidden'\?",
    '[model]\nsystem = "xlm"': r"\[model\] system: there is no 'xlm'; did you mean 'xml'\?",
    "[model]\nhidden = 4": r"\[model\] system is missing; there are: .*reloclnet",
    "model = 3": r"\[model\] is 3; accepted: a table",
    'as_released = "yes"\n' + SMALL: r"as_released is 'yes'; accepted: true or false",
    "released = 3\n" + SMALL: r"released is 3; accepted: tables",
}
WRONG_SETTINGS = {
    'training.epochs="3"': r"a\.toml \[training\] epochs is '3'; accepted: a whole number, 1 or more",
    "training.epochs=true": r"epochs is True; accepted: a whole number, 1 or more",
    "training.epochs=0": r"epochs is 0; accepted: a whole number, 1 or more",
    "training.learning_rate=nan": r"learning_rate is nan; accepted: a finite number, above 0",
    "training.learning_rate=inf": r"learning_rate is inf; accepted: a finite number, above 0",
    "training.warmup=1.0": r"warmup is 1.0; accepted: a finite number, 0 or more, below 1",
    "training.patience=never": r"patience is \'never\'; accepted: a whole number, 1 or more, or none",
    "training.patience=0": r"patience is 0; accepted",
    "training.seed=-1": r"seed is -1; accepted: a whole number, 0 or more, below 4294967296",
    "training.weight_decay=-1": r"weight_decay is -1; accepted: a finite number, 0 or more",
    "training.optimizer=sgd": r"optimizer is 'sgd'; accepted: 'bertadam', 'adamw', 'adamw-as-released'",
    "training.metric=R@1": r"a\.toml \[training\]: metric 'R@1'",
    "training.protocol=tvl": r"a\.toml \[training\]: 'tvl' is not a protocol",
    "training.betas=[0.9]": r"betas is \[0\.9\]; accepted: a list of 2, each a finite number",
    "training.betas=[0.9, 1.0]": r"betas is \[0\.9, 1\.0\]; accepted: a list of 2",
    "training.milestones=[-1]": r"milestones is \[-1\]; accepted: a list, each a whole number, 0 or more",
    "training.frozen.text=-2": r"frozen is \{'text': -2\}; accepted: for each name a whole number, 0 or more",
    "training.milestone_factor=0": r"milestone_factor is 0; accepted: a finite number, above 0",
    "data.batch_of=words": r"\[data\] batch_of is 'words'; accepted: 'queries', 'windows', 'videos'",
    "data.negatives.share=all": r"\[data\] negatives share is 'all'; accepted: 'query', 'batch'",
    "model.hidden=3.5": r"\[model\] hidden is 3.5; accepted: a whole number",
    "features.streams=3": r"\[features\] streams is 3; accepted: for each name a text",
    "features.streams={ a = 3 }": r"streams is \{'a': 3\}; accepted: for each name a text",
    "features.normalise=3": r"normalise is 3; accepted: true or false, or a list, each a text",
    'features.normalise=["sub", 3]': r"normalise is \['sub', 3\]; accepted: true or false, or a list",
    'features.normalise=["sub"]': r"normalise names the stream 'sub'; there are none",
    "features.max_clips=0": r"a\.toml \[features\] max_clips is 0; accepted: a whole number, 1 or more",
    "features.max_tokens=-1": r"max_tokens is -1; accepted",
    "features.clips_per_cell=0": r"clips_per_cell is 0; accepted",
    "features.clip_seconds=nan": r"clip_seconds is nan; accepted: seconds above 0, or none",
    "features.clip_seconds=-2": r"clip_seconds is -2; accepted: seconds above 0",
    "decoding.ends=open": r"\[decoding\] ends is 'open'; accepted: 'inclusive'",
    "training.epochs": "accepted: KEY=VALUE",
    "=3": "accepted: KEY=VALUE",
    "title.more=3": "'title' is a value, and has no 'more'",
    "training.epocs=3": "there is no 'epocs'; did you mean 'epochs'",
}


def test_what_is_wrong_is_named_by_file_key_and_value(tmp_path: Path) -> None:
    for text, message in WRONG_FILES.items():
        with pytest.raises(UsageError, match=message):
            load_experiment(written(tmp_path, text))
    path = written(tmp_path, 'title = "a"\n' + SMALL)
    for setting, message in WRONG_SETTINGS.items():
        with pytest.raises(UsageError, match=message):
            load_experiment(path, [setting])


def test_a_file_that_is_no_toml_is_named_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"a\.toml: is not TOML: .*line 2"):
        load_experiment(written(tmp_path, "[model]\nsystem = = 3\n"))
    with pytest.raises(FormatError, match="not UTF-8"):
        bad = tmp_path / "bad.toml"
        bad.write_bytes(b'title = "\xff"')
        load_experiment(bad)
    with pytest.raises(FormatError, match=r"none\.toml: cannot be read"):
        load_experiment(tmp_path / "none.toml")


def test_set_changes_values_and_makes_tables(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    experiment = load_experiment(
        path, ["training.epochs=3", "model.hidden=64", "training.optimizer=adamw", "training.patience=none"]
    )
    assert experiment.training.epochs == 3
    assert experiment.model["hidden"] == 64
    assert experiment.training.optimizer == "adamw"
    assert experiment.training.patience is None


def test_the_released_tables_hold_only_as_released_and_set_comes_last(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL + "[decoding]\nmin_clips = 1\n[released.decoding]\nmin_clips = 2\n")
    assert load_experiment(path).decoding.min_clips == 1
    assert load_experiment(path, ["as_released=true"]).decoding.min_clips == 2
    assert load_experiment(path, ["as_released=true", "decoding.min_clips=3"]).decoding.min_clips == 3


def test_a_file_cannot_extend_itself(tmp_path: Path) -> None:
    written(tmp_path, 'extends = "b.toml"')
    path = written(tmp_path, 'extends = "a.toml"', "b.toml")
    with pytest.raises(FormatError, match="extends itself"):
        load_experiment(path)
    with pytest.raises(FormatError, match="extends: is not a file name 3"):
        load_experiment(written(tmp_path, "extends = 3"))


@pytest.mark.slow
def test_all_settings_written_down_are_the_same_experiment(tmp_path: Path) -> None:
    for path in SHIPPED:
        experiment = load_experiment(path, ["as_released=true"])
        again = written(tmp_path, experiment.to_toml())
        read = load_experiment(again)
        assert replace(read, name="", model={}) == replace(experiment, name="", model={})
        inputs = inputs_for(experiment)
        assert read.config(inputs) == experiment.config(inputs)
        told_by_features = set(read.config(inputs).__dataclass_fields__) - set(read.model)
        assert told_by_features <= {"streams", "query_width", "max_clips", "max_tokens"} | CELLS_AND_TEXT


def test_losses_of_relevant_pairs_need_a_file_of_pairs(tmp_path: Path) -> None:
    experiment = load_experiment(written(tmp_path, SMALL + "lambda_nll_2 = 1.0"))
    inputs = Inputs(StreamInput(4), {"vision": StreamInput(4)})
    with pytest.raises(UsageError, match=r"\[data\] pairs is missing"):
        experiment.config(inputs)
    with_pairs = replace(experiment, data=replace(experiment.data, pairs="a.safetensors"))
    assert with_pairs.config(inputs).uses_pairs


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("query_width=9", r"a\.toml \[model\] query_width is 9, but the features and .* say 4; leave it out"),
        ("streams={vision=5}", r"\[model\] streams is \{'vision': 5\}, .* say \{'vision': 4\}"),
        ("max_clips=99", r"\[model\] max_clips is 99, .* say 100"),
        ("max_tokens=3", r"\[model\] max_tokens is 3, .* say 30"),
    ],
)
def test_a_model_cannot_say_of_the_features_what_they_are_not(
    tmp_path: Path, setting: str, message: str
) -> None:
    path = written(tmp_path, SMALL)
    inputs = Inputs(StreamInput(4), {"vision": StreamInput(4)})
    with pytest.raises(UsageError, match=message):
        load_experiment(path, [f"model.{setting}"]).config(inputs)
    same = load_experiment(path, ["model.query_width=4", "model.max_clips=101"]).config(inputs)
    assert (same.query_width, same.max_clips) == (4, 101)


@pytest.mark.parametrize("change", [{"clips_per_cell": 2}, {"tokenizer": "words"}])
def test_what_a_system_knows_nothing_of_is_refused(change: dict[str, Any]) -> None:
    experiment = load_experiment(EXPERIMENTS / "simulated_charades" / "xml.toml")
    inputs = Inputs(StreamInput(8), {"vision": StreamInput(8)}, **change)
    with pytest.raises(UsageError, match="xml has no such setting"):
        experiment.config(inputs)


@pytest.mark.parametrize("system", ["mmn", "crocs", "g2l", "ms_sl", "gmmformer", "moment_detr", "uvcom"])
def test_weights_of_examples_are_refused_for_a_system_that_ignores_them(tmp_path: Path, system: str) -> None:
    path = written(tmp_path, SMALL.replace('"xml"', f'"{system}"'))
    inputs = Inputs(StreamInput(4), {"vision": StreamInput(4)})
    pairs = ["data.pairs=pairs.jsonl"]
    assert load_experiment(path, pairs).config(inputs)
    with pytest.raises(UsageError, match=f"weights is 'similarity', but {system} does not weight"):
        load_experiment(path, [*pairs, "data.weights=similarity"]).config(inputs)


def test_a_config_without_the_fields_that_training_fills_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = "    inputs: dict\n    query_width: int = 4\n"
    module = f"from dataclasses import dataclass\n\n@dataclass\nclass Config:\n{fields}"
    (tmp_path / "odd_system.py").write_text(f"{module}\nModel = Config\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "odd.toml").write_text('[model]\nsystem = "odd"\n')
    needed = r"Config of odd has the fields inputs, query_width; it needs streams and query_width"
    with declared_system("odd", "odd_system"), pytest.raises(UsageError, match=needed):
        load_experiment(tmp_path / "odd.toml")


def test_a_system_of_a_plugin_can_be_trained(tmp_path: Path) -> None:
    with declared_system("strangers", "whenabouts_systems.models.moment_detr"):
        experiment = load_experiment(written(tmp_path, '[model]\nsystem = "strangers"\nhidden = 8\n'))
        config = experiment.config(Inputs(StreamInput(4), {"vision": StreamInput(4)}))
        assert config.hidden == 8 and isinstance(new_model("strangers", config), moment_detr.Model)


@pytest.mark.parametrize(
    "path", sorted(EXPERIMENTS.glob("*/conquer.toml")), ids=lambda path: path.parent.name
)
def test_conquer_as_released_has_its_optimizer_and_clips_no_gradients(path: Path) -> None:
    training = load_experiment(path, ["as_released=true"]).training
    assert (training.optimizer, training.warmup, training.max_norm) == ("adamw-as-released", 0.0, 0.0)


@pytest.mark.parametrize("name", ["xml", "reloclnet", "conquer"])
def test_the_ranked_experiments_have_what_the_paper_says_of_all_three(name: str) -> None:
    """Paper 004, appendix C: BERT queries, weights by similarity, learning rate, patience, no suppression."""
    experiment = load_experiment(EXPERIMENTS / "tvr_ranking" / f"{name}.toml")
    assert experiment.data.weights == "similarity" and experiment.data.positives == "judged"
    assert experiment.features.query == "query_bert.h5"
    assert experiment.training.patience == 10 and experiment.training.learning_rate == 1e-4
    assert experiment.training.metric == "nDCG@20,IoU=0.5" and experiment.training.evaluate_every == 0.5
    assert experiment.decoding.nms is None
    assert experiment.model.get("video_loss", "contrast") == "contrast"
