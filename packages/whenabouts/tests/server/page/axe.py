"""Runs the accessibility checker axe on a screen of the page, in light and dark, wide and narrow."""

from __future__ import annotations

from typing import Any

import pytest

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")

SIZES = ({"width": 1440, "height": 868}, {"width": 390, "height": 844})
SCHEMES = ("light", "dark")
GRAVE = {"serious", "critical"}


def faults(page: Any) -> list[str]:
    """Serious and critical violations, one line per element."""
    before = page.viewport_size
    found = []
    for size in SIZES:
        page.set_viewport_size(size)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(150)  # lists are laid out anew
            for fault in axe.Axe().run(page).response["violations"]:
                if fault["impact"] in GRAVE:
                    found += [
                        f"{fault['id']} at {size['width']}, {scheme}: {node['html'][:160]} {summary(node)}"
                        for node in fault["nodes"]
                    ]
    page.set_viewport_size(before)
    return found


def summary(node: dict[str, Any]) -> str:
    """The first reason that axe gives for an element."""
    reasons = [*node["any"], *node["all"], *node["none"]]
    return str(reasons[0]["message"]) if reasons else ""
