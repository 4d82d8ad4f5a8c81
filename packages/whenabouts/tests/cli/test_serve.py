"""The command `whenabouts serve`: its options and errors; `tests/server` tests the server."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whenabouts.cli.main import build_parser

Whenabouts = Callable[..., Any]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "0.0.0.0"], "--token"),
        (["--host", "0.0.0.0", "--token", ""], "--token"),
        (["--host", "0.0.0.0", "--token", "short"], "openssl"),
        (["--token", "a" * 20, "--token-file", "token"], "not allowed with argument --token"),
        (["--token-file", "/dev/zero"], "--token-file /dev/zero"),
        (["--token-file", "no-such-file"], "--token-file no-such-file"),
        (["--port", "70000"], "65535"),
        (["--port", "-1"], "65535"),
        (["--port", "http"], "invalid int"),
        (["--cache-size", "0"], "1 MB"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_remedy(
    whenabouts: Whenabouts, monkeypatch: pytest.MonkeyPatch, options: list[str], told: str
) -> None:
    monkeypatch.delenv("WHENABOUTS_TOKEN", raising=False)
    done = whenabouts("serve", *options)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""


def test_a_second_corpus_is_refused_and_not_taken_in_place_of_the_first(bare: Whenabouts) -> None:
    done = bare("stats", "--corpus", "a.corpus", "--corpus", "b.corpus")
    assert done.code == 2 and "a.corpus was named before" in done.err and "side by side" in done.err


def test_corpora_side_by_side_must_all_be_there(bare: Whenabouts) -> None:
    done = bare("serve", "--corpus", "a.corpus", "--corpus", "a.corpus")
    assert done.code == 2 and "a.corpus, a.corpus: name at least one corpus, and each only once" in done.err


def test_an_empty_corpus_is_served_only_where_a_page_may_fill_it(
    bare: Whenabouts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from whenabouts.server import run

    served: list[tuple[Any, Any]] = []
    monkeypatch.setattr(run, "serve", lambda corpus, settings, *_: served.append((corpus, settings)))
    place = tmp_path / "new.corpus"
    assert bare("serve", "--corpus", str(place)).code == 2
    assert not place.exists()
    done = bare("serve", "--corpus", str(place), "--allow", str(tmp_path))
    assert done.code == 0, done.err
    ((corpus, settings),) = served
    assert corpus.streams == () and settings.allow == (tmp_path,)


@pytest.mark.parametrize(
    ("secret", "told"), [(b"", "empty"), (b"short\n", "openssl"), (b"a" * 5000, "larger")]
)
def test_a_file_without_a_good_secret_is_refused(
    whenabouts: Whenabouts, tmp_path: Path, secret: bytes, told: str
) -> None:
    (tmp_path / "token").write_bytes(secret)
    done = whenabouts("serve", "--host", "0.0.0.0", "--token-file", str(tmp_path / "token"))
    assert done.code == 2 and told in done.err


@pytest.mark.parametrize("given", ["--token-file", "--token", "WHENABOUTS_TOKEN"])
def test_a_secret_is_asked_for_and_not_printed(
    whenabouts: Whenabouts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    from whenabouts.server import run
    from whenabouts.server.settings import Settings

    secret = "0123456789abcdef0123"
    (tmp_path / "token").write_text(f"{secret}\n")
    options = {"--token-file": str(tmp_path / "token"), "--token": secret}
    monkeypatch.setenv("WHENABOUTS_TOKEN", secret if given == "WHENABOUTS_TOKEN" else "")
    asked: list[str] = []
    shown: list[tuple[bool | None, bool | None]] = []

    def serve(corpus: object, settings: Settings, say: Callable[[str], None], processes: int) -> None:
        asked.append(settings.token)
        shown.append((settings.show_paths, settings.change_people))
        with run.listen(settings) as bound:
            say(run.greeting(settings, bound))

    monkeypatch.setattr(run, "serve", serve)
    done = whenabouts("serve", "--port", "0", *([given, options[given]] if given in options else []))
    assert asked == [secret]
    whenabouts("serve", "--port", "0", "--show-paths", "--no-change-people")
    whenabouts("serve", "--port", "0", "--no-show-paths", "--change-people")
    assert shown == [(None, None), (True, False), (False, True)]
    assert done.code == 0 and done.out.startswith("serving at http://127.0.0.1:")
    assert "add ?token=" in done.out and secret not in done.out + done.err


def test_a_cache_that_cannot_be_kept_is_told(whenabouts: Whenabouts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = whenabouts("serve", "--port", "0", "--cache", str(tmp_path / "file"))
    assert done.code == 2
    assert "--cache" in done.err


def test_a_corpus_must_be_there(bare: Whenabouts, tmp_path: Path) -> None:
    done = bare("serve", "--corpus", str(tmp_path / "none"), "--port", "0")
    assert done.code == 2
    assert "whenabouts index" in done.err


def test_a_missing_library_names_what_to_install(
    whenabouts: Whenabouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    import whenabouts.server as server

    # The module is imported anew here; the test restores it, also as an attribute of its package.
    monkeypatch.setattr("whenabouts.server", server)
    for name in [name for name in sys.modules if name.startswith("whenabouts.server")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    done = whenabouts("serve", "--port", "0")
    assert done.code == 2
    assert "uvicorn" in done.err
    assert "pip install 'whenabouts[server]'" in done.err


def test_the_file_of_the_token_may_lie_below_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/ada")
    assert build_parser(["serve"]).parse_args(["serve", "--token-file", "~/t"]).token_file == Path(
        "/srv/ada/t"
    )
