"""Module names of earlier versions work for one version, with a warning."""

from __future__ import annotations

import importlib
import sys

import pytest

import whenabouts
from whenabouts.moved import PLACES, place_of


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("whenabouts.product.corpus", "whenabouts.corpus"),
        ("whenabouts.product.index.store", "whenabouts.index.store"),
        ("whenabouts.product.people", "whenabouts.people.naming"),
        ("whenabouts.formats.files", "whenabouts.intake.files"),
        ("whenabouts.models.fusion", "whenabouts.moments.fusion"),
    ],
)
def test_a_module_that_moved_is_the_same_module_and_warns(before: str, now: str) -> None:
    for other in ("formats", "models"):  # above the product: `import whenabouts.models.x` imports it first
        if f".{other}." in before:
            pytest.importorskip("whenabouts_bench" if other == "formats" else "whenabouts_systems")
    for name in [name for name in sys.modules if place_of(name)]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning) as warned:
        module = importlib.import_module(before)
    assert f"{before} is now {now}" in [str(warning.message) for warning in warned]
    assert module is importlib.import_module(now)
    assert module.__spec__ is not None and module.__spec__.name == now


def test_names_inside_a_package_that_moved_are_had_from_it() -> None:
    for name in [name for name in sys.modules if place_of(name)]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning):
        moved = importlib.import_module("whenabouts.product.search_result")
    assert moved.SearchResult is whenabouts.SearchResult


def test_what_did_not_move_is_found_as_ever_and_what_never_was_is_missing() -> None:
    assert place_of("whenabouts.types") is None
    with pytest.raises(ModuleNotFoundError, match=r"whenabouts\.nowhere"):
        importlib.import_module("whenabouts.nowhere")
    with pytest.warns(DeprecationWarning), pytest.raises(ModuleNotFoundError):
        importlib.import_module("whenabouts.product.nowhere")
    assert len(PLACES) > 60
