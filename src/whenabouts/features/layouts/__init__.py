"""Layouts of features on disk: a file a layout, and the folder is the registry.

Every module here that declares a `NAME` is a layout (see `Layout`); a new layout is a new file and nothing
else.
"""

from __future__ import annotations

from typing import Protocol, cast

from whenabouts.features.location import FeatureLocation, OpenOptions
from whenabouts.features.source import FeatureSource
from whenabouts.registry import modules_declaring


class Layout(Protocol):
    """A layout of features on disk. It recognises by content, and only what no other layout recognises."""

    NAME: str
    """As `--layout` takes it."""
    SUMMARY: str
    """One line for people: which releases, what keys."""

    def recognises(self, location: FeatureLocation) -> bool:
        """Whether what is there is in this layout. Raises ReaderMissing where only a package could tell."""

    def open_source(self, location: FeatureLocation, options: OpenOptions) -> FeatureSource:
        """The features that are there."""


def all_layouts() -> tuple[Layout, ...]:
    """All layouts, by name; at most one recognises a location."""
    modules = modules_declaring(__name__, "NAME")
    return tuple(sorted((cast(Layout, module) for module in modules), key=lambda layout: layout.NAME))
