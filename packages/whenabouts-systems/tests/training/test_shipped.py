"""Experiments that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.types import UsageError
from whenabouts_systems.training.experiment import FOLDER as EXPERIMENTS
from whenabouts_systems.training.experiment import experiment_file, has_stages, load_experiment, shipped
from whenabouts_systems.training.stages import load_stages

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.slow
def test_every_shipped_experiment_opens_by_its_name() -> None:
    names = shipped()
    files = {path.relative_to(EXPERIMENTS) for path in (EXPERIMENTS).rglob("*.toml")}
    assert {Path(f"{name}.toml") for name in names} == files and len(names) > 40
    for name in names:
        file = experiment_file(name)
        assert load_stages(file) if has_stages(file) else load_experiment(file).model


@pytest.mark.parametrize("name", ["tvr/xml", "tvr/xml.toml", "experiments/tvr/xml.toml"])
def test_a_name_means_the_same_in_a_checkout_and_elsewhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert experiment_file(name).samefile(EXPERIMENTS / "tvr" / "xml.toml")


def test_a_file_of_ones_own_comes_before_a_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tvr").mkdir()
    (tmp_path / "tvr" / "xml.toml").write_text("")
    assert experiment_file("tvr/xml.toml") == Path("tvr/xml.toml")
    assert experiment_file("tvr/xml").samefile(EXPERIMENTS / "tvr" / "xml.toml")


def test_a_wrong_name_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"tvr/xlm: neither a file nor a shipped experiment") as refused:
        experiment_file("tvr/xlm")
    assert "; tvr/: conquer, gmmformer, hero" in str(refused.value)
