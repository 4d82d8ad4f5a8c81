"""Options from `whenabouts.toml`: their priority, and the values that are refused."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from whenabouts.cli import configuration
from whenabouts.cli.configuration import parse_with_files
from whenabouts.cli.main import all_verbs, build_parser
from whenabouts.types import UsageError

Parse = Callable[..., argparse.Namespace]
Whenabouts = Callable[..., argparse.Namespace]
with_seed = pytest.mark.skipif(
    find_spec("whenabouts_systems") is None, reason="`calibrate --seed` comes with whenabouts-systems"
)


@pytest.fixture()
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; the user's configuration is beside it."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("WHENABOUTS_CORPUS", raising=False)
    return place


@pytest.fixture()
def written(folder: Path) -> Parse:
    """Parse a command line with a folder's file and a user's."""

    def parse(own: str, *arguments: str, user: str = "") -> argparse.Namespace:
        (folder / "whenabouts.toml").write_text(own, encoding="utf-8")
        if user:
            place = folder.parent / "user" / "whenabouts"
            place.mkdir(parents=True, exist_ok=True)
            (place / "whenabouts.toml").write_text(user, encoding="utf-8")
        verb = next(word for word in arguments if not word.startswith("-"))
        return parse_with_files(build_parser([verb]), arguments, verb)

    return parse


def test_the_command_line_wins_then_the_environment_the_folder_the_user_and_the_default(
    written: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, user = 'corpus = "own"\n[search]\nk = 3\n', 'corpus = "user"\n[search]\nk = 7\nmin-confidence = 1\n'
    options = written(own, "search", "x", user=user)
    assert (options.corpus, options.k, options.min_confidence, options.json) == ("own", 3, 1.0, False)
    assert written("", "search", "x", user=user).k == 7
    options = written(own, "search", "x", "-k", "5", "--corpus", "line", user=user)
    assert (options.corpus, options.k) == ("line", 5)
    monkeypatch.setenv("WHENABOUTS_CORPUS", "environment")
    assert written(own, "search", "x", user=user).corpus == "environment"
    options = written(own, "--no-config", "search", "x", user=user)
    assert (options.corpus, options.k) == ("environment", None)  # 10, and no bound with --all


def test_a_list_on_the_command_line_replaces_one_of_a_file(written: Parse) -> None:
    own = '[search]\nwhere = ["camera=drone*"]\nstream = "subtitle"\n'
    options = written(own, "search", "x", "--where", "year=2018")
    assert (options.where, options.stream) == (["year=2018"], ["subtitle"])
    assert written("[search]\nk = 3\n", "search", "x").where == []


def test_json_and_table_exclude_each_other_and_the_nearer_one_wins(written: Parse) -> None:
    options = written("json = true\n", "search", "x", "--table")
    assert (options.json, options.table) == (False, True)
    options = written("json = true\n[search]\ntable = true\n", "search", "x")
    assert (options.json, options.table) == (False, True)
    options = written("json = false\n", "search", "x", user="json = true\n")
    assert (options.json, options.table) == (False, False)
    with pytest.raises(UsageError, match="json and table exclude each other"):
        written("[search]\njson = true\ntable = true\n", "search", "x")


def test_a_secret_on_the_command_line_wins_over_the_other_kind_in_a_file(
    written: Parse, folder: Path
) -> None:
    user = '[serve]\ntoken = "from-the-file"\n'
    options = written("", "serve", "--token-file", "t", user=user)
    assert (options.token, options.token_file) == (None, Path("t"))
    options = written("", "serve", "--token", "given", user='[serve]\ntoken-file = "t"\n')
    assert (options.token, options.token_file) == ("given", None)
    assert written("", "serve", user=user).token == "from-the-file"


def test_verbs_under_a_verb_and_options_that_are_required_come_from_files(written: Parse) -> None:
    options = written("[doctor.why]\nk = 4\njson = true\n", "doctor", "why", "x", "a@0-1")
    assert (options.k, options.json, options.table) == (4, True, False)
    options = written('[cut]\nout = "cuts"\n', "cut", "x", "--corpus", "c")
    assert options.out == "cuts"
    options = written("[search]\nafter = 2018-01-01\n", "search", "x")
    assert options.after == "2018-01-01"
    options = written('[serve]\ncache = "~/cache"\n', "serve")
    assert options.cache == Path("~/cache").expanduser()
    assert options.port == 8765
    assert written("[export]\ndrop-frame = true\n", "export", "x", "--format", "edl").drop_frame is True
    assert written("[export]\nnon-drop-frame = true\n", "export", "x").drop_frame is False
    assert written('corpus = "x"\n', "export", "x").drop_frame is None  # the rate decides


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[search]\nkk = 1\n",
            r"whenabouts\.toml: \[search\] kk is not an option .*after, all, before, check",
        ),
        ("[search]\nk = 'five'\n", r"whenabouts\.toml: \[search\] k is 'five'; accepted: a whole number"),
        ("[search]\nk = true\n", "accepted: a whole number"),
        ("[search]\nmin-confidence = '1'\n", "accepted: a number"),
        ("[search]\njson = 1\n", "accepted: true or false"),
        ("[search]\nwhere = [1]\n", "accepted: text in quotes"),
        ("[serch]\nk = 1\n", r"whenabouts\.toml: \[serch\] is not a verb; .*search"),
        ("k = 5\n", r"whenabouts\.toml: k is above the tables, .*\[search\]"),
        ("search = 5\n", "search is above the tables"),
        ("[search\n", r"whenabouts\.toml: is not TOML: .*line 1"),
        ("[search]\nwhere = " + "[" * 5000 + "]" * 5000, r"whenabouts\.toml: is nested too deeply"),
        ("[search]\nwhere" + ".a" * 5000 + " = 1", r"whenabouts\.toml: .*is nested too deeply"),
        ("[search]\nk = " + "9" * 5000, r"whenabouts\.toml: has a number with thousands of digits"),
        ("[search]\nk = 0x" + "f" * 50000, r"search\.k: is a whole number beyond 64 bits; .*2.63 - 1"),
        ("[search]\nwithin = 'a\\u0000'".replace("'", '"'), r"search\.within: contains a NUL character"),
        ("corpus = 1\n", "corpus is 1; accepted: text in quotes"),
    ],
)
def test_what_a_file_gets_wrong_is_named_with_what_is_accepted(
    written: Parse, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        written(text, "search", "x")


@with_seed
def test_an_option_with_its_own_type_takes_a_number_or_its_text(written: Parse) -> None:
    assert written("[calibrate]\nseed = 3\n", "calibrate").seed == 3
    assert written('[calibrate]\nseed = "4"\n', "calibrate").seed == 4


@pytest.mark.parametrize(
    ("verb", "line", "message"),
    [
        pytest.param(
            "calibrate",
            "seed = 3.5",
            r"toml: \[calibrate\] seed: '3\.5': give a whole number, 0 or more",
            marks=with_seed,
        ),
        pytest.param("calibrate", "seed = true", r"seed: 'True': give a whole number", marks=with_seed),
        pytest.param("calibrate", "seed = 'a'", r"seed: 'a': give a whole number", marks=with_seed),
        ("serve", "cache = 3", r"cache is 3; accepted: text in quotes"),
        ("index", "text = 3", r"text is 3; accepted: text in quotes"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused(
    written: Parse, verb: str, line: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        written(f"[{verb}]\n{line}\n", verb, *["x"] * (verb == "index"))


@pytest.mark.parametrize("word", ["--no-config", "--no-conf", "--n"])
def test_the_files_are_ignored_if_that_is_wished_in_short_too(written: Parse, word: str) -> None:
    options = written("[search]\nk = 3\n", word, "search", "x")
    assert (options.no_config, options.k) == (True, None)
    assert written("[search]\nk = 3\n", "search", "x").k == 3


def test_a_wrong_file_ends_a_command_with_status_two_but_not_its_help(folder: Path, bare: Whenabouts) -> None:
    (folder / "whenabouts.toml").write_text("[stats]\nkk = 1\n")
    done = bare("stats")
    assert (done.code, done.out) == (2, "") and "[stats] kk" in done.err
    assert bare("stats", "--help").code == bare("--help").code == 0
    done = bare("--no-config", "stats")
    assert done.code == 2 and "which corpus?" in done.err


def test_doctor_names_the_files(folder: Path, bare: Whenabouts) -> None:
    (folder / "whenabouts.toml").write_text("[search]\nk = 1\n")
    assert str(folder / "whenabouts.toml") in bare("doctor", "--table").out


@pytest.mark.parametrize("verb", list(all_verbs()))
def test_every_option_of_every_verb_can_stand_in_a_file(verb: str) -> None:
    def check(parser: argparse.ArgumentParser, name: str) -> None:
        for action in configuration._options_of(parser):
            key = configuration._key(action)
            assert action.nargs in (None, 0, "?"), (name, key)  # a list of values has no form in a file
            if action.nargs == "?":  # `true` in a file is the option without its value
                assert action.const is True, (name, key)
            if action.nargs == 0:
                switches = (argparse._StoreConstAction, argparse.BooleanOptionalAction)
                assert isinstance(action, switches), (name, key, action)
        for word, child in configuration._parsers_under(parser).items():
            check(child, f"{name} {word}")

    check(configuration._parsers_under(build_parser([verb]))[verb], verb)


@pytest.mark.parametrize(("written", "value"), [(True, True), (False, None), ("small", "small")])
def test_an_option_that_needs_no_value_is_switched_or_given_one(written: object, value: object) -> None:

    verb = configuration._parsers_under(build_parser(["index"]))["index"]
    (action,) = (each for each in configuration._options_of(verb) if each.dest == "transcribe")
    setting = configuration._Setting(Path("whenabouts.toml"), "[index] ", "transcribe", written, 0)
    assert configuration._value(action, setting) == value


@pytest.mark.parametrize(
    ("verb", "line"),
    [
        ("search", 'check = "http://127.0.0.1:9/v1"'),
        ("search", "send-frames = true"),
        ("search", 'rewrite = "http://127.0.0.1:9/v1#m"'),
        ("search", "send-query = true"),
        ("search", "force = true"),
        ("serve", 'host = "0.0.0.0"'),
        ("serve", 'token = "a-token-that-is-long-enough"'),
        ("serve", 'files = ["/"]'),
        ("serve", "change-people = true"),
        ("index", "prune = true"),
        ("serve", 'allow = ["videos"]'),
        ("index", 'ray = "stranger.example:6379"'),
        ("mcp", 'http = "0.0.0.0:8766"'),
        ("mcp", 'page = "https://stranger.example"'),
        ("search", 'model = "https://stranger.example/v1#m"'),
        ("search", 'model = " HTTPS://stranger.example/v1#m"'),
    ],
)
def test_what_a_person_has_to_agree_to_is_not_taken_from_the_folder(
    written: Parse, verb: str, line: str
) -> None:
    arguments = [verb] + ["x"] * (verb == "search")
    with pytest.raises(UsageError, match="is not allowed in a folder's file"):
        written(f"[{verb}]\n{line}\n", *arguments)
    options = written("", *arguments, user=f"[{verb}]\n{line}\n")
    key = line.partition(" ")[0].replace("-", "_")
    assert getattr(options, key) not in (None, False, "127.0.0.1", [])


def test_every_option_that_takes_a_host_is_one_that_a_person_has_to_agree_to() -> None:
    hosts = {
        configuration._key(action)
        for verb, parser in configuration._parsers_under(build_parser([])).items()
        for each in (parser, *configuration._parsers_under(build_parser([verb])).values())
        for action in configuration._options_of(each)
        if str(action.metavar) in ("ADDRESS", "HOST", "HOST:PORT")
    }
    assert {"http", "ray", "trust-proxy"} <= hosts <= configuration.CONSENT


def test_the_page_names_every_option_that_a_person_has_to_agree_to_and_every_variable() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "configuration.md").read_text(encoding="utf-8")
    for name in (*configuration.CONSENT, *configuration._ENVIRONMENT.values()):
        assert f"`{name}`" in page, name


def test_a_corpus_on_an_object_store_is_taken_from_the_user_s_file_alone(written: Parse) -> None:
    line = 'corpus = "s3://bucket/corpus"\n'
    with pytest.raises(UsageError, match="is not allowed in a folder's file"):
        written(line, "search", "x")  # its owner would get requests signed with the user's key
    assert written("", "search", "x", user=line).corpus == "s3://bucket/corpus"


def test_a_search_in_a_stranger_s_folder_asks_no_address(
    folder: Path, bare: Whenabouts, samples_corpus: Path
) -> None:
    settings = '[search]\ncheck = "http://127.0.0.1:9/v1 model"\nsend-frames = true\n'
    (folder / "whenabouts.toml").write_text(settings)
    done = bare("search", "crown jewels", "--corpus", str(samples_corpus))
    assert (done.code, done.out) == (2, "")
    assert "check is not allowed" in done.err
    assert bare("--no-config", "search", "crown jewels", "--corpus", str(samples_corpus)).code == 0
