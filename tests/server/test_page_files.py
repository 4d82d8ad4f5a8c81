"""The page's files: found by name only, compressed, and not sent twice."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from whenabouts.server.errors import ServerError
from whenabouts.server.page_files import FOLDER, PageFiles

from .conftest import Asked


def request(**headers: str) -> Request:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "headers": pairs})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    page = tmp_path / "page"
    (page / "parts").mkdir(parents=True)
    (page / "page.css").write_text("body {}\n" * 200)
    (page / "parts" / "a.js").write_text("'use strict';")
    (page / "notes.md").write_text("not for clients")
    (tmp_path / "secret.js").write_text("secret")
    return page


def test_files_are_sent_as_they_are_and_smaller_where_the_client_can(folder: Path) -> None:
    files = PageFiles(folder)
    plain = files.respond(request(), "page.css")
    small = files.respond(request(accept_encoding="br, gzip"), "page.css")
    assert plain.body == (folder / "page.css").read_bytes()
    assert small.headers["content-encoding"] == "gzip"
    assert gzip.decompress(bytes(small.body)) == plain.body
    assert plain.headers["content-type"] == "text/css; charset=utf-8"
    known = files.respond(request(if_none_match=plain.headers["etag"]), "page.css")
    assert (known.status_code, known.body) == (304, b"")


def test_a_changed_file_is_sent_anew(folder: Path) -> None:
    files = PageFiles(folder)
    before = files.respond(request(), "parts/a.js").headers["etag"]
    (folder / "parts" / "a.js").write_text("'use strict'; // changed")
    assert files.respond(request(), "parts/a.js").headers["etag"] != before


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../secret.js", "/etc/passwd", "notes.md", "parts", "parts/../page.css", "page.css\0"],
)
def test_other_names_are_of_no_file(folder: Path, name: str) -> None:
    with pytest.raises(ServerError) as told:
        PageFiles(folder).respond(request(), name)
    assert told.value.status == 404


def test_the_page_and_all_it_names_are_there(asked: Asked) -> None:
    page: Any = asked.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for path in FOLDER.glob("*.*"):
        answer = asked.get(f"/static/{path.name}")
        assert answer.status_code == (200 if path.suffix in (".html", ".css", ".js", ".svg") else 404)
