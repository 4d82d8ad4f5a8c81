"""Inputs that fuzzing found, read again by their parsers: a value that keeps its promise, or a refusal."""

from __future__ import annotations

import time

import pytest
from tests.fuzz.parsers import INPUTS, PARSERS, checked, kept

_MOST_SECONDS = 5.0


def test_each_parser_has_inputs_and_all_together_are_small() -> None:
    assert {path.stem for path in INPUTS.iterdir()} == set(PARSERS)
    assert sum(path.stat().st_size for path in INPUTS.iterdir()) < 200_000


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_reads_or_refuses_what_was_found(name: str) -> None:
    inputs = kept(name)
    assert inputs
    for data in (b"", *inputs):
        began = time.process_time()
        checked(PARSERS[name], data)
        assert time.process_time() - began < _MOST_SECONDS, data
