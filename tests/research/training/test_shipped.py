"""Experiments of the papers, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from whenabouts.product.cli.main import main
from whenabouts.research.training import shipped
from whenabouts.research.training.experiment import has_stages, load_experiment
from whenabouts.research.training.shipped import find_experiment, shipped_experiments
from whenabouts.types import UsageError

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


def test_every_experiment_of_the_repository_has_its_name_and_can_be_read_by_it() -> None:
    names = shipped_experiments()
    assert set(names.values()) == set(EXPERIMENTS.rglob("*.toml"))
    for name in names:
        file = find_experiment(name)
        assert file == EXPERIMENTS / f"{name}.toml"
        if not has_stages(file):
            assert load_experiment(file).system


def test_an_installed_package_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "experiments" / "tvr"
    inside.mkdir(parents=True)
    (inside / "mine.toml").touch()
    monkeypatch.setattr(shipped, "_PLACES", (tmp_path / "experiments", EXPERIMENTS))
    assert shipped_experiments() == {"tvr/mine": inside / "mine.toml"}


def test_a_file_of_ones_own_comes_before_a_shipped_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_experiment("tvr/xml.toml") == Path("tvr/xml.toml")
    Path("tvr").mkdir()
    assert find_experiment("tvr/xml") == EXPERIMENTS / "tvr" / "xml.toml"
    Path("tvr/xml").touch()
    assert find_experiment("tvr/xml") == Path("tvr/xml")


@pytest.mark.parametrize(("name", "near"), [("tvr/xlm", "tvr/xml"), ("xml", "didemo/xml"), ("§", "tvr/xml")])
def test_an_unknown_name_lists_the_near_ones(name: str, near: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^{name}: is no file and no shipped experiment; near: .*\b{near}\b"
    ):
        find_experiment(name)


def test_names_outside_the_folder_of_experiments_are_not_taken() -> None:
    with pytest.raises(UsageError, match="is no file and no shipped experiment"):
        find_experiment("tvr/../tvr/xml")


def test_the_command_takes_the_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features").mkdir()
    assert main(["train", "tvr/xml", "--features", "features", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "features" in said and "no shipped experiment" not in said, said
    assert main(["train", "tvr/xlm", "--features", "features", "--out", "run"]) == 2
    assert "tvr/xml" in capsys.readouterr().err
