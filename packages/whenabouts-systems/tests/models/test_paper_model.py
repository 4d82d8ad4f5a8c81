"""The settings alone decide whether a system is that of its paper or that of the authors' program."""

from __future__ import annotations

import copy
import importlib
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from tests.models.test_systems import STREAMS, Case

from whenabouts.types import UsageError
from whenabouts_systems.models import config_of, model_names
from whenabouts_systems.models.protocol import PaperModel

SYSTEMS = [
    name
    for name in model_names()
    if issubclass(importlib.import_module(f"whenabouts_systems.models.{name}").Model, PaperModel)
]


@pytest.fixture(params=SYSTEMS)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param, STREAMS["two streams"])


def _classes(case: Case) -> tuple[Any, Any]:
    """The class of the paper and that of the program."""
    papers, programs = (
        importlib.import_module(f"whenabouts_systems.{room}.{case.name}") for room in ("models", "released")
    )
    return papers.Model, programs.AsReleased


def test_all_systems_with_a_program_are_here() -> None:
    """BET and CET have the setting without a program: it takes their labels to the letter."""
    with_setting = {
        name for name in model_names() if "as_released" in {one.name for one in fields(config_of(name, {}))}
    }
    assert with_setting - {"bet", "cet"} == set(SYSTEMS)


def test_a_model_that_is_made_directly_is_the_one_that_its_settings_name(case: Case) -> None:
    paper, program = _classes(case)
    config = case.config()
    with torch.device("meta"):
        assert type(paper(config)) is paper
        assert type(paper(replace(config, as_released=True))) is program
        assert type(program(replace(config, as_released=True))) is program


def test_the_program_has_the_parameters_of_the_paper_and_stays_the_program_in_a_copy(case: Case) -> None:
    paper, program = case.model(), case.model(as_released=True)
    shapes = [{name: value.shape for name, value in one.state_dict().items()} for one in (paper, program)]
    assert shapes[0] == shapes[1]
    assert type(copy.deepcopy(program)) is type(program)


def test_the_program_refuses_the_settings_of_the_paper(case: Case) -> None:
    _, program = _classes(case)
    with pytest.raises(UsageError, match=r"as_released is false; accepted: true"):
        program(case.config())
