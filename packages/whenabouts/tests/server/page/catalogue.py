"""Reads the texts of the page from its scripts and HTML, and the entries of its dictionaries."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

# `t("…")`; and `counted(n, "video")`, of which the catalogue has "{n} video|{n} videos".
_TEXT = re.compile(r'(?<![\w.])t\(("(?:[^"\\]|\\.)*")?')
_COUNTED = re.compile(r'counted\([^"\n]*?, "([^"]+)"(?:, "([^"]+)")?\)')
_SAID = ("aria-label", "placeholder", "title")
_UNSAID = {"code", "script", "style", "title"}


def texts_of_scripts(page: Path) -> set[str]:
    """The texts that scripts pass to `t` and `counted`, which are literals there."""
    found = set()
    for script in page.glob("*.js"):
        if script.name == "language.js" or script.stem.count("."):
            continue
        # `counted` itself makes its text.
        source = re.sub("^export const counted.*", "", script.read_text(encoding="utf-8"), flags=re.M)
        for match in _TEXT.finditer(source):
            assert match[1], (
                f"{script.name} translates what is not written there: {source[match.start() :][:60]}"
            )
            found.add(json.loads(match[1]))
        found |= {f"{{n}} {one}|{{n}} {many or one + 's'}" for one, many in _COUNTED.findall(source)}
    return found


def texts_of_html(page: Path) -> set[str]:
    """The texts of the HTML that have letters, and the names of elements without text."""
    reader = _Reader()
    html = (page / "index.html").read_text(encoding="utf-8")
    reader.feed(re.sub(r"<noscript>.*?</noscript>", "", html, flags=re.DOTALL))
    return {text for text in reader.texts if re.search("[a-z]{2}", text)}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str] = set()
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.texts |= {value.strip() for name, value in attrs if name in _SAID and value}

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag not in _UNSAID:
            self.texts.add(data.strip())


def dictionary(file: Path, name: str) -> dict[str, str]:
    """The entries of `words` or `terms` of a dictionary."""
    source = file.read_text(encoding="utf-8")
    found = re.search(rf"^export const {name} = (\{{.*?^\}});", source, re.M | re.S)
    assert found, f"{file.name} has no {name}"

    def once(pairs: list[tuple[str, str]]) -> dict[str, str]:
        assert len(dict(pairs)) == len(pairs), f"{file.name} has an entry twice"
        return dict(pairs)

    read: dict[str, str] = json.loads(re.sub(r",\s*\}", "}", found[1]), object_pairs_hook=once)
    return read
