"""A trained system as a folder: what is written is read back, and what is no such folder is named."""

from __future__ import annotations

import json
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.hub_server import COMMIT, fetch_from_server
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError, WhenaboutsError
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.trained import Trained, at_most


@pytest.fixture()
def trained() -> Trained:
    torch.manual_seed(0)
    config = config_of("xml", {"streams": {"vision": 6}, "query_width": 5, "hidden": 8, "heads": 2})
    inputs = Inputs(
        StreamInput(5, encoder="words"), {"vision": StreamInput(6, fingerprint="abc")}, clip_seconds=2.0
    )
    about = {
        "title": "a | b",
        "metrics": {"R@1,IoU=0.5": 0.1234, "mAP": None},
        "simulated": True,
        "patience": None,
    }
    return Trained("xml", new_model("xml", config).eval(), inputs, Decoding(nms=0.5), "as-released", about)


def scores(trained: Trained) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    queries = QueryBatch(torch.randn(2, 3, 5, generator=generator), torch.ones(2, 3, dtype=torch.bool))
    clips = ClipBatch(
        {"vision": torch.randn(3, 4, 6, generator=generator)}, torch.ones(3, 4, dtype=torch.bool)
    )
    model = trained.model
    with torch.no_grad():
        found: torch.Tensor = model.score_videos(model.encode_queries(queries), model.encode_videos(clips))
    return found


def test_what_is_saved_is_loaded(trained: Trained, tmp_path: Path) -> None:
    folder = trained.save_pretrained(tmp_path / "deep" / "run")
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    again = Trained.from_pretrained(folder)
    assert (again.system, again.inputs, again.decoding, again.labels) == (
        "xml", trained.inputs, trained.decoding, "as-released",
    )  # fmt: skip
    assert again.model.config == trained.model.config
    assert not again.model.training
    assert torch.equal(scores(again), scores(trained))
    assert again.fingerprint == trained.fingerprint
    assert Trained.from_pretrained(str(folder)).fingerprint == trained.fingerprint


def test_loading_draws_no_random_number(trained: Trained, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path)
    torch.manual_seed(5)
    before = torch.rand(1)
    torch.manual_seed(5)
    Trained.from_pretrained(tmp_path)
    assert torch.equal(torch.rand(1), before)


def test_the_fingerprint_changes_with_a_weight_and_a_setting(trained: Trained) -> None:
    kept = trained.fingerprint
    with torch.no_grad():
        next(trained.model.parameters()).view(-1)[0] += 1
    assert trained.fingerprint != kept
    other = Trained("xml", trained.model, trained.inputs, Decoding(), "as-released")
    assert other.fingerprint != trained.fingerprint


def test_a_setting_that_a_later_version_adds_leaves_the_fingerprint(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, config = trained.fingerprint, trained.model.config
    later = make_dataclass("Config", [("colour", str, "red")], bases=(type(config),), frozen=True)
    settings = {one.name: getattr(config, one.name) for one in fields(config)}
    monkeypatch.setattr(trained.model, "config", later(**settings))
    assert trained.fingerprint == before
    monkeypatch.setattr(trained.model, "config", later(**settings, colour="blue"))
    assert trained.fingerprint != before


def test_the_card_tells_what_a_reader_must_know(trained: Trained, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: whenabouts\n")
    assert "simulated features: no number below is a benchmark result" in card
    assert "| R@1,IoU=0.5 | 12.34 |" in card
    assert "| mAP | - |" in card
    assert "whenabouts run --checkpoint THIS-FOLDER --features FEATURES --split test" in card
    assert "| patience | none |" in card
    assert "| hidden | 8 |" in card


def test_the_card_leaves_out_what_is_empty(trained: Trained, tmp_path: Path) -> None:
    replace(trained, about={"title": "", "rates": {}, "seed": 3}).save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "\n# xml, trained with whenabouts\n" in card
    assert "rates" not in card
    assert "| seed | 3 |" in card


def test_a_system_too_large_for_the_machine_is_told_in_one_line() -> None:
    with pytest.raises(UsageError, match="xml: a system with these settings cannot be made"):
        new_model("xml", config_of("xml", {"hidden": 4_000_000_000}))


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    for name in (tmp_path / "none", "./none", "/no/such/folder", "two words", "a/b/c"):
        with pytest.raises(UsageError, match="no such folder"):
            Trained.from_pretrained(name)


def test_missing_cut_off_and_foreign_files_are_named(trained: Trained, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path)
    weights = (tmp_path / "model.safetensors").read_bytes()
    for content, message in (
        (weights[: len(weights) // 2], r"model\.safetensors: cut off, or no safetensors file"),
        (b"", "cut off"),
        (b"\x80\x04K\x01.", "cut off"),
    ):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(FormatError, match=message):
            Trained.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FormatError, match=r"the weights are missing: it has no model\.safetensors"):
        Trained.from_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(FormatError, match=r"it has no config\.json; accepted: a folder with"):
        Trained.from_pretrained(tmp_path)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "config.json").write_text("{}")
    with pytest.raises(FormatError, match=r"but folders that have \(first\): name one of these; .*--resume"):
        Trained.from_pretrained(tmp_path)


def test_a_missing_package_of_the_system_is_named_as_the_training_knew_it(
    trained: Trained, tmp_path: Path
) -> None:
    trained.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"system": "lmx"}))
    versions = {"python": "3.11", "torch": "2.0", "strangers-package": "0.1"}
    (tmp_path / "run.json").write_text(json.dumps({"versions": versions}))
    with pytest.raises(FormatError, match=r"not installed here; its training used strangers-package 0\.1"):
        Trained.from_pretrained(tmp_path)
    (tmp_path / "run.json").write_text('{"versions": 3}')
    with pytest.raises(FormatError, match=r"known: .*perhaps in a package not installed here"):
        Trained.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, r"config\.json: format: is of a form that .* does not read: 2; accepted: 1"),
        ({"system": "lmx"}, "'lmx': no such system; known: .*xml"),
        ({"system": 3}, "system: expected `str`, got `int`: 3; accepted: the file as `whenabouts train`"),
        ({"model": {"hiden": 8}}, "xml has no setting 'hiden'"),
        (
            {"model": {"hidden": "x"}},
            r"config\.json: this program cannot build.*hidden is 'x'; accepted: a whole number",
        ),
        (
            {"model": {"alpha": None}},
            r"config\.json: this program cannot build.*alpha is None; accepted: a finite number",
        ),
        (
            {"inputs": {}},
            r"config\.json: this program cannot build.*inputs: 'query' is missing; expected query",
        ),
        ({"inputs": []}, r"inputs: expected `object`, got `array`: \[\]"),
        ({"decoding": {"ends": "open"}}, "ends is 'open'"),
        ({"labels": "half"}, "labels: is 'half'; accepted: 'inclusive', 'as-released'; the file as"),
    ],
)
def test_settings_that_do_not_fit_are_named(
    trained: Trained, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    trained.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(FormatError, match=message):
        Trained.from_pretrained(tmp_path)


@pytest.mark.parametrize("key", ["system", "model", "inputs", "decoding", "labels"])
def test_a_key_that_is_missing_is_named_with_the_remedy(trained: Trained, tmp_path: Path, key: str) -> None:
    trained.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    told = json.loads(path.read_text())
    del told[key]
    path.write_text(json.dumps(told))
    with pytest.raises(
        FormatError, match=rf"config\.json: {key}: is missing; accepted: the file as `whenabouts train"
    ):
        Trained.from_pretrained(tmp_path)


@pytest.mark.parametrize("key", ["query", "streams", "clip_seconds", "max_clips", "long_videos", "tef"])
def test_inputs_that_lack_a_key_are_not_guessed(trained: Trained, tmp_path: Path, key: str) -> None:
    trained.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    told = json.loads(path.read_text())
    del told["inputs"][key]
    path.write_text(json.dumps(told))
    with pytest.raises(
        FormatError, match=rf"config\.json: .*inputs: '{key}' is missing; expected query, streams"
    ):
        Trained.from_pretrained(tmp_path)


def test_a_setting_that_is_missing_is_named_where_the_weights_do_not_fit(
    trained: Trained, tmp_path: Path
) -> None:
    trained.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    told = json.loads(path.read_text())
    del told["model"]["query_width"]
    path.write_text(json.dumps(told))
    with pytest.raises(FormatError, match=r"does not fit config\.json \(it lacks the settings query_width\)"):
        Trained.from_pretrained(tmp_path)


@pytest.mark.parametrize("setting", ["query_width", "max_clips", "max_tokens"])
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    trained.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    told = json.loads(path.read_text())
    told["model"][setting] = 1_000_000_000
    path.write_text(json.dumps(told))
    made: list[str] = []

    def watched(system: str, config: Any) -> Any:
        made.append(str(torch.empty(0).device))
        return new_model(system, config)

    monkeypatch.setattr("whenabouts_systems.models.trained.new_model", watched)
    with pytest.raises(FormatError, match=r"does not fit config\.json .*; accepted: shape .*1000000000"):
        Trained.from_pretrained(tmp_path)
    assert made == ["meta"]


def test_weights_are_counted_while_another_thread_builds_a_module() -> None:
    """PyTorch goes through its hooks for each weight, and fails if they change meanwhile."""
    counted = []

    def count(*_: object) -> None:
        with at_most(1):
            counted.append(1)

    hooks = [register_module_parameter_registration_hook(hook) for hook in (count, lambda *_: None)]
    try:
        nn.Linear(2, 2)
    finally:
        for hook in hooks:
            hook.remove()
    assert len(counted) == 2


def test_the_settings_of_another_program_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FormatError, match="the settings of another program"):
        Trained.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(FormatError, match="is not JSON"):
        Trained.from_pretrained(tmp_path)


def test_weights_that_do_not_fit_are_named(trained: Trained, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    kept = load_file(path)
    name = sorted(kept)[0]
    for weights, message in (
        ({**kept, "zz": torch.zeros(1)}, "has a weight 'zz' that the system"),
        ({key: one for key, one in kept.items() if key != name}, f"has no weight {name!r}"),
        (
            {**kept, name: torch.zeros(7)},
            rf"weight {name!r} does not fit config\.json \(7,\); accepted: shape",
        ),
    ):
        save_file(weights, path)
        with pytest.raises(FormatError, match=message):
            Trained.from_pretrained(tmp_path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(WhenaboutsError, match="No space left"):
        trained.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


class _Hub:
    """Stands for the hub's client: what it was asked for."""

    asked: list[tuple[str, Any]]

    def __init__(self) -> None:
        _Hub.asked = []

    def create_repo(self, name: str, **more: Any) -> None:
        self.asked.append((name, more))

    def upload_folder(self, *, repo_id: str, folder_path: str, **more: Any) -> str:
        if repo_id == "no/space":
            raise OSError("the hub is full\nand more")
        self.asked.append((repo_id, {path.name: path.stat().st_size for path in Path(folder_path).iterdir()}))
        return "https://hub/commit/1"


def test_a_calibration_goes_with_the_system_to_folders_and_to_a_hub_and_back(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.save_pretrained(tmp_path / "run")
    content = json.dumps({"fingerprint": trained.fingerprint, "iou": 0.5}).encode()
    (tmp_path / "run" / "calibration.json").write_bytes(content)
    loaded = Trained.from_pretrained(tmp_path / "run")
    assert loaded.calibration == content
    assert loaded.fingerprint == trained.fingerprint
    copy = loaded.save_pretrained(tmp_path / "copy")
    assert (copy / "calibration.json").read_bytes() == content
    monkeypatch.setattr("huggingface_hub.HfApi", _Hub)
    loaded.push_to_hub("me/xml")
    assert "calibration.json" in _Hub.asked[1][1]
    monkeypatch.undo()
    fetch_from_server(copy, "me/xml", tmp_path / "cache", monkeypatch)
    assert Trained.from_pretrained("me/xml").calibration == content


def test_the_calibration_of_other_weights_stays_behind(trained: Trained, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path / "run")
    beside = tmp_path / "run" / "calibration.json"
    for content in (json.dumps({"fingerprint": trained.fingerprint}).encode(), b"[]", b"{"):
        beside.write_bytes(content)
        loaded = replace(Trained.from_pretrained(tmp_path / "run"), decoding=Decoding(nms=0.7))
        assert loaded.calibration == content
        assert not (loaded.save_pretrained(tmp_path / "copy") / "calibration.json").exists()


def test_the_three_files_are_pushed_to_a_hub(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", _Hub)
    assert trained.push_to_hub("me/xml", private=True) == "https://hub/commit/1"
    created, uploaded = _Hub.asked
    assert created == ("me/xml", {"private": True, "exist_ok": True})
    assert set(uploaded[1]) == {"model.safetensors", "config.json", "README.md"}
    with pytest.raises(UsageError, match="'xml': a hub's repository is named owner/name"):
        trained.push_to_hub("xml")
    with pytest.raises(WhenaboutsError, match=r"no/space: the hub refused the upload: the hub is full$"):
        trained.push_to_hub("no/space")


@pytest.mark.parametrize("name", ["me/two--hyphens", "me/name.git"])
def test_a_name_that_hubs_refuse_is_a_usage_error(trained: Trained, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}': .*(have -- or|cannot end by)"):
        trained.push_to_hub(name)


def test_a_system_is_opened_by_its_name_on_a_hub_once_it_was_fetched(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.save_pretrained(tmp_path / "run")
    fetch_from_server(tmp_path / "run", "me/xml", tmp_path / "cache", monkeypatch)
    for revision in (None, COMMIT):
        assert Trained.from_pretrained("me/xml", revision=revision).fingerprint == trained.fingerprint
    with pytest.raises(UsageError, match=r"this machine has revision aaaaaaaaaaaa, not v2"):
        Trained.from_pretrained("me/xml", revision="v2")


def test_a_system_that_was_not_fetched_is_not_downloaded_unasked() -> None:
    with pytest.raises(UsageError, match=r"nothing is downloaded unasked; .*`whenabouts models get me/none`"):
        Trained.from_pretrained("me/none")
