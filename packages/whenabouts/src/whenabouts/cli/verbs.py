"""What a verb is, and which verbs and options other packages of this repository bring."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from whenabouts import plugins
from whenabouts.types import UsageError


class Verb(NamedTuple):
    """The module that has `add_parser(verbs)`, and the verb's line of the help page."""

    module: str
    summary: str
    group: str = "plugins"


class VerbOptions(NamedTuple):
    """More options of a verb: a module with `add_options(parser)` and `run(options) -> int | None`.

    `run` is asked before the verb itself; None leaves the work to the verb.
    """

    verb: str
    module: str


BRINGS = {
    "bench": "evaluate bench compare report convert datasets relevance build judge judgements",
    "research": "train run features import-checkpoint explain",
    "cluster": "deploy",
}
"""Extra -> the verbs that it brings."""
OPTIONS = {"search": ("--highlights",), "calibrate": ("--checkpoint",)}
"""Verb -> its options that the extra `research` brings."""


def refuse_missing(verb: str) -> None:
    """Raise UsageError, naming the extra, for a verb of a package that is not installed."""
    for extra, verbs in BRINGS.items():
        if verb in verbs.split():
            raise UsageError(
                f"the verb {verb} is in a package that is not installed: pip install 'whenabouts[{extra}]'"
            )


class Missing(argparse.Action):
    """An option of a package that is not installed: naming it raises UsageError."""

    def __call__(self, parser: Any, options: Any, values: Any, option_string: str | None = None) -> None:
        """Raise it."""
        raise UsageError(
            f"{option_string} is in a package that is not installed: pip install 'whenabouts[research]'"
        )


def extended(name: str) -> Sequence[VerbOptions]:
    """The options that plugins add to a verb."""
    added: list[VerbOptions] = list(plugins.loaded("verb_options").values())
    return [more for more in added if more.verb == name]
