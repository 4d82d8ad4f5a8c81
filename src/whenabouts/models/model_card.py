"""The model card of a trained system: what a person must know before they use it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.models.trained import Trained

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


def model_card(trained: Trained) -> str:
    """The card as Markdown, with the front matter that hubs read."""
    about = dict(trained.about)
    title = str(about.pop("title", f"{trained.system}, trained with whenabouts"))
    does = _FINDS if hasattr(trained.model, "score_spans") else _CHOOSES
    parts = [_HEAD.format(system=trained.system, title=title, does=does)]
    if about.pop("simulated", False):
        parts.append("**Trained on simulated features: no number below is a benchmark result.**\n")
    numbers = about.pop("metrics", {})
    if numbers:
        rows = [f"| {name} | {100 * value:.2f} |" for name, value in numbers.items() if value is not None]
        parts.append("\n".join([*_MEASURED, *rows, ""]))
    if about:
        parts.append(_table("Training", about))
    parts += [
        _table("Inputs", trained.inputs.to_json()),
        _table("Decoding", {**trained.decoding.to_json(), "labels": trained.labels}),
        _table("Settings of the model", asdict(trained.model.config)),
    ]
    return "\n".join(parts)


def _table(title: str, rows: dict[str, Any]) -> str:
    told = {name: value for name, value in rows.items() if value not in ({}, [], ())}
    lines = [f"| {name} | {_cell(value)} |" for name, value in told.items()]
    return "\n".join([f"## {title}", "", "| | |", "| --- | --- |", *lines, ""])


def _cell(value: Any) -> str:
    if value is None:
        return "none"
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return told.replace("|", "\\|").replace("\n", " ")
