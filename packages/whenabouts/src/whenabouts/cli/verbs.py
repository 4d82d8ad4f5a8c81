"""What a verb is, and which verbs and options the other packages of this repository add."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from whenabouts.types import UsageError


class Verb(NamedTuple):
    """A verb: the module with `add_parser(verbs)`, and the line for the help page."""

    module: str
    summary: str
    group: str = "plugins"


class VerbOptions(NamedTuple):
    """Options added to a `verb` by a `module` with `add_options(parser)` and `run(options) -> int | None`.

    The module's `run` is called before the verb's. If it returns None, the verb runs.
    """

    verb: str
    module: str


BRINGS = {
    "bench": "evaluate bench compare report convert datasets relevance build judge judgements",
    "research": "train run features import-checkpoint explain",
    "cluster": "deploy",
}
"""Extra -> the verbs it adds."""
OPTIONS = {"search": ("--highlights",), "calibrate": ("--checkpoint",)}
"""Verb -> the options that the extra `research` adds."""


def refuse_missing(verb: str) -> None:
    """Raise UsageError, naming the extra, if a verb's package is not installed."""
    for extra, verbs in BRINGS.items():
        if verb in verbs.split():
            raise UsageError(
                f"the verb {verb} is in a package that is not installed: pip install 'whenabouts[{extra}]'"
            )


class Missing(argparse.Action):
    """An option of a package that is not installed; using it raises UsageError."""

    def __call__(self, parser: Any, options: Any, values: Any, option_string: str | None = None) -> None:
        raise UsageError(
            f"{option_string} is in a package that is not installed: pip install 'whenabouts[research]'"
        )
