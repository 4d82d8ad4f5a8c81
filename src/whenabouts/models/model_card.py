"""The model card of a trained system: what a person must know before they use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_HEAD = """\
---
library_name: whenabouts
tags: [video-moment-retrieval, {system}]
---

# {title}

{does}

```sh
whenabouts run --checkpoint THIS-FOLDER --features FEATURES --split test --out run.jsonl
whenabouts search "a sentence" --corpus my.corpus --model THIS-FOLDER
```
"""


_FINDS = "A system that finds moments in videos: a sentence in, a ranked list of (video, start, end) out."
_CHOOSES = "A system that finds videos of which a part answers: a sentence in, a ranked list of videos out."
_MEASURED = ("## On the validation split (percent)", "", "| metric | mean |", "| --- | ---: |")


def model_card(
    system: str,
    about: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
    *,
    localizes: bool,
) -> str:
    """The card as Markdown, with the front matter that hubs read.

    `about` is what the training says of itself, `settings` are tables by their title.
    """
    rest = dict(about)
    title = str(rest.pop("title", f"{system}, trained with whenabouts"))
    does = _FINDS if localizes else _CHOOSES
    parts = [_HEAD.format(system=system, title=title, does=does)]
    if rest.pop("simulated", False):
        parts.append("**Trained on simulated features: no number below is a benchmark result.**\n")
    numbers = rest.pop("metrics", {})
    if numbers:
        rows = [f"| {name} | {100 * value:.2f} |" for name, value in numbers.items() if value is not None]
        parts.append("\n".join([*_MEASURED, *rows, ""]))
    if rest:
        parts.append(_table("Training", rest))
    return "\n".join([*parts, *(_table(name, rows) for name, rows in settings.items())])


def _table(title: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items() if value not in ({}, [], ())]
    return "\n".join([f"## {title}", "", "| | |", "| --- | --- |", *lines, ""])


def _cell(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|").replace("\n", " ")
