"""The player (MCP App) in a real browser, in the frame of a simulated host.

The host speaks JSON-RPC by postMessage, answers with results of the server's tools, and sets the strictest
content security policy and sandbox of the specification.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytest.importorskip("fastapi", reason="the extra server is not installed")
pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

from playwright import sync_api as playwright_api
from tests.agents.test_player import HOSTILE, called, decoders, place  # noqa: F401 (two are fixtures)

from whenabouts import agents

expect = playwright_api.expect
CHROMIUM = Path("/usr/bin/chromium")
Host = Callable[..., AbstractContextManager[Any]]

pytestmark = pytest.mark.slow

HOST = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: Canvas; } iframe { width: 100%; height: 640px; border: 0; }
</style><iframe id="view" sandbox="allow-scripts" src="http://view.test/"></iframe><script>
const log = [], sizes = [];
const view = document.getElementById("view");
const send = (message) => view.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
addEventListener("message", async ({ source, data }) => {
  if (source !== view.contentWindow) return;
  log.push(data);
  if (data.method === "ui/initialize") {
    send({ id: data.id, result: { protocolVersion: "2026-01-26", hostInfo: { name: "stand-in", version: "1" },
      hostCapabilities: given.capabilities, hostContext: given.context } });
  } else if (data.method === "ui/notifications/initialized") {
    send({ method: "ui/notifications/tool-input", params: { arguments: {} } });
    send({ method: "ui/notifications/tool-result", params: given.played });
  } else if (data.method === "tools/call") {
    const result = given.results[data.params.name];
    send({ id: data.id, ...(result ? { result } : { error: { code: -32602, message: "unknown tool" } }) });
  } else if (data.method === "ui/update-model-context") {
    send({ id: data.id, result: {} });
  } else if (data.method === "ui/notifications/size-changed") {
    view.style.height = `${data.params.height}px`;
    sizes.push(data.params);
  }
});
</script>"""
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'"
)
DOCUMENT = Path(agents.__file__).with_name("player.html")


@pytest.fixture(scope="module")
def results(place: Path) -> dict[str, Any]:  # noqa: F811
    """The results of the server's tools for a moment and for a hostile one."""
    moment = {"moment": "friday@4.3-6"}
    played = called(place, "play", moment)
    span = "{:.3f}-{:.3f}".format(*played["structuredContent"]["window"])
    return {
        "play": played,
        "film": called(place, "film", {"moment": f"friday@{span}"}),
        "collect": {"content": [{"type": "text", "text": "{}"}]},
        "hostile": called(place, "play", {"moment": "hostile@1-2"}),
    }


@pytest.fixture(scope="module")
def host(results: dict[str, Any]) -> Iterator[Host]:
    """Opens the simulated host with the player in it.

    It starts after `results`, because no event loop can run beside the browser's. Requests to other addresses
    and errors fail the test.
    """
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )

        @contextmanager
        def opened(
            played: Any,
            *,
            answers: dict[str, Any] | None = None,
            context: dict[str, Any] | None = None,
            calls: bool = True,
            size: tuple[int, int] = (1024, 768),
            **options: Any,
        ) -> Iterator[Any]:
            given = {
                "played": played,
                "results": answers or {},
                "capabilities": {"serverTools": {}} if calls else {},
                "context": context or {},
            }
            page = browser.new_page(viewport={"width": size[0], "height": size[1]}, **options)
            page.set_default_timeout(60_000)
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)

            def fetched(route: Any) -> None:
                if route.request.url == "http://host.test/":
                    script = json.dumps(given).replace("<", "\\u003c")
                    route.fulfill(
                        content_type="text/html", body=f"<script>const given = {script};</script>{HOST}"
                    )
                elif route.request.url == "http://view.test/":
                    headers = {"content-security-policy": POLICY, "content-type": "text/html; charset=utf-8"}
                    route.fulfill(headers=headers, body=DOCUMENT.read_text(encoding="utf-8"))
                else:
                    wrong.append(f"fetched {route.request.url}")
                    route.abort()

            page.route("**/*", fetched)
            page.goto("http://host.test/")
            try:
                yield page
                assert not wrong
            finally:
                page.close()

        yield opened
        browser.close()


def sent(page: Any, method: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = page.evaluate("log")
    return [message for message in messages if message.get("method") == method]


def test_a_border_is_moved_by_keys_and_by_dragging_and_the_model_learns_of_it(
    host: Host, results: dict[str, Any]
) -> None:
    with host(results["play"]) as page:
        view = page.frame_locator("#view")
        start, end = view.get_by_role("slider", name="Start"), view.get_by_role("slider", name="End")
        expect(view.locator("#times")).to_have_text("0:04.3 – 0:06.0 (1.7 s)")
        expect(view.locator("#said")).to_contain_text("stolen the crown jewels")
        start.focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Shift+ArrowLeft")
        expect(start).to_have_attribute("aria-valuetext", "0:03.2")
        for _ in range(60):
            page.keyboard.press("Shift+ArrowRight")  # never past the end
        expect(start).to_have_attribute("aria-valuenow", "5.90")
        view.get_by_role("button", name="Borders as found").click()
        expect(view.locator("#times")).to_have_text("0:04.3 – 0:06.0 (1.7 s)")
        box = end.bounding_box()
        strip = view.locator("#strip").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(strip["x"] + strip["width"] * 0.75, box["y"] + 20, steps=5)
        page.mouse.up()
        low, high = results["play"]["structuredContent"]["window"]
        assert float(end.get_attribute("aria-valuenow")) == pytest.approx(low + 0.75 * (high - low), abs=0.05)
        ended = float(end.get_attribute("aria-valuenow"))
        page.wait_for_function(
            "end => Math.abs(end - Number(log.filter(({ method }) => method === 'ui/update-model-context')"
            ".at(-1)?.params.structuredContent.moment.split('-').at(-1))) < 0.01",
            arg=ended,
        )
        *_, last = sent(page, "ui/update-model-context")
        moment = last["params"]["structuredContent"]["moment"]
        assert re.fullmatch(r"friday-\w{8}@4\.300-5\.\d{3}", moment)
        assert last["params"]["content"][0]["text"].endswith(moment)


def test_the_film_is_fetched_when_it_is_played_and_stops_at_the_border(
    host: Host, results: dict[str, Any]
) -> None:
    with host(results["play"], answers=results) as page:
        view = page.frame_locator("#view")
        assert not sent(page, "tools/call")
        view.get_by_role("button", name="Play").click()
        expect(view.locator("#film")).to_be_visible()
        expect(view.get_by_role("button", name="Pause")).to_be_visible()
        expect(view.get_by_role("button", name="Play")).to_be_visible(timeout=20_000)  # it reached the end
        (call,) = sent(page, "tools/call")
        span = "{:.3f}-{:.3f}".format(*results["play"]["structuredContent"]["window"])
        assert call["params"]["name"] == "film" and call["params"]["arguments"]["moment"].endswith(f"@{span}")
        low = results["play"]["structuredContent"]["window"][0]
        at = view.locator("#film").evaluate("film => film.currentTime")
        assert at == pytest.approx(6.0 - low, abs=0.1)
        if folder := os.environ.get("WHENABOUTS_SHOTS"):
            page.screenshot(path=f"{folder}/player_film.png")


def test_a_moment_goes_into_a_collection_with_the_borders_set(host: Host, results: dict[str, Any]) -> None:
    with host(results["play"], answers=results) as page:
        view = page.frame_locator("#view")
        view.get_by_role("slider", name="Start").press("ArrowRight")
        view.get_by_role("button", name="Put into the collection").click()
        expect(view.locator("#status")).to_have_text("Which collection? Write its name.")
        page.keyboard.type("opening film")
        page.keyboard.press("Enter")
        expect(view.locator("#status")).to_have_text("Put into opening film.")
        (call,) = sent(page, "tools/call")
        assert call["params"]["name"] == "collect"
        assert call["params"]["arguments"]["collection"] == "opening film"
        assert call["params"]["arguments"]["moments"][0].endswith("@4.400-6.000")


def test_a_host_without_tools_gets_the_pictures_alone(host: Host, results: dict[str, Any]) -> None:
    with host(results["play"], calls=False) as page:
        view = page.frame_locator("#view")
        expect(view.locator("#keep")).to_be_hidden()
        first = view.locator("#picture").get_attribute("src")
        view.get_by_role("button", name="Play").click()
        expect(view.get_by_role("button", name="Play")).to_be_visible(timeout=20_000)
        assert view.locator("#picture").get_attribute("src") != first
        assert not sent(page, "tools/call")


def test_a_film_that_is_refused_leaves_the_pictures(host: Host, results: dict[str, Any]) -> None:
    refused = {"isError": True, "content": [{"type": "text", "text": "has more than 8 MB"}]}
    with host(results["play"], answers={"film": refused}) as page:
        view = page.frame_locator("#view")
        view.get_by_role("button", name="Play").click()
        expect(view.locator("#status")).to_have_text("Pictures without sound: has more than 8 MB")
        expect(view.locator("#picture")).to_be_visible()


def test_hostile_words_are_text(host: Host, results: dict[str, Any]) -> None:
    played = json.loads(json.dumps(results["hostile"]))
    assert "onerror" in played["structuredContent"]["said"]
    played["structuredContent"]["title"] = HOSTILE
    played["_meta"] = {
        "whenabouts/pictures": [{"at": 1, "jpeg": '"><img src=http://evil.test/x>'}, {"at": "x"}, 3]
    }
    with host(played) as page:
        view = page.frame_locator("#view")
        expect(view.locator("#title")).to_have_text(HOSTILE)
        expect(view.locator("#said")).to_contain_text("<script>hacked()</script>")
        assert view.locator("main img").count() == 1  # the player's own, without a source


def test_a_video_that_is_gone_shows_its_words(host: Host, results: dict[str, Any]) -> None:
    gone = {"gone": True, "film": False}
    with host({"structuredContent": results["play"]["structuredContent"] | gone}) as page:
        view = page.frame_locator("#view")
        expect(view.locator("#status")).to_have_text("The file of this video is gone.")
        expect(view.locator("#said")).to_contain_text("stolen the crown jewels")
        expect(view.get_by_role("button", name="Play")).to_be_hidden()
        expect(view.get_by_role("slider", name="Start")).to_be_visible()


@pytest.mark.parametrize(
    "played", [{"isError": True, "content": [{"type": "text", "text": "no such video"}]}, {}]
)
def test_a_call_that_failed_says_so(host: Host, played: dict[str, Any]) -> None:
    with host(played) as page:
        said = "no such video" if played else "There is no moment to show."
        expect(page.frame_locator("#view").locator("#status")).to_have_text(said)
        expect(page.frame_locator("#view").locator("#player")).to_be_hidden()


def test_messages_of_others_are_ignored_and_requests_of_the_host_answered(
    host: Host, results: dict[str, Any]
) -> None:
    with host(results["play"]) as page:
        view = page.frame_locator("#view")
        expect(view.locator("#title")).to_have_text(re.compile("."))
        title = view.locator("#title").text_content()
        (frame,) = [each for each in page.frames if each.url == "http://view.test/"]
        forged = {"jsonrpc": "2.0", "method": "ui/notifications/tool-result", "params": {}}
        frame.evaluate("message => window.postMessage(message, '*')", forged)
        for number, method in enumerate(("ping", "ui/resource-teardown", "x/y"), 900):
            page.evaluate("message => send(message)", {"id": number, "method": method, "params": {}})
        page.wait_for_function("log.filter((each) => each.id >= 900).length === 3")
        answers = {each["id"]: each for each in page.evaluate("log") if each.get("id", 0) >= 900}
        assert answers[900]["result"] == answers[901]["result"] == {}
        assert answers[902]["error"]["code"] == -32601
        assert view.locator("#title").text_content() == title


@pytest.mark.parametrize("size", [(1440, 868), (1024, 768), (390, 844)])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_takes_the_hosts_theme(
    host: Host, results: dict[str, Any], size: tuple[int, int], theme: str
) -> None:
    colours = {
        "--color-text-primary": "rgb(1, 2, 3)",
        "--color-background-primary": r'u\72l("http://evil.test/")',
    }
    context = {"theme": theme, "styles": {"variables": colours if theme == "light" else {}}}
    with host(results["play"], size=size, context=context, color_scheme=theme) as page:
        view = page.frame_locator("#view")
        expect(view.locator("#times")).to_contain_text("0:04.3")
        page.wait_for_function("sizes.length > 0")
        root = view.locator("html")
        assert root.evaluate("root => root.scrollWidth <= root.clientWidth")
        assert root.evaluate("root => root.style.colorScheme") == theme
        if theme == "light":
            assert view.locator("body").evaluate("body => getComputedStyle(body).color") == "rgb(1, 2, 3)"
        for _ in range(8):
            page.keyboard.press("Tab")
            focused = view.locator("*:focus-visible")
            if focused.count():
                assert focused.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
        if folder := os.environ.get("WHENABOUTS_SHOTS"):
            page.screenshot(path=f"{folder}/player_{size[0]}_{theme}.png")
