"""The API reference shows the examples of docstrings as code, not as quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", flags=re.M)


class DoctestBlocks(griffe.Extension):
    """Puts a fence around each doctest, before Markdown reads its `>>>` and brackets."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
