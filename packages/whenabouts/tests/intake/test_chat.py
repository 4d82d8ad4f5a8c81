"""A client of chat endpoints, against real small servers that hang, lie, break off, refuse and redirect."""

from __future__ import annotations

import json
import time

import pytest
from tests.chat_server import Answer, ChatServer, Reply, chat_server, says

from whenabouts.intake.chat import (
    Bounds,
    Chat,
    ChatError,
    ChatUnreachable,
    Endpoint,
    picture_part,
    text_part,
)
from whenabouts.types import UsageError

QUICK = Bounds(seconds=5.0)
SCHEMA = {"type": "object", "properties": {}}


def _ask(server: ChatServer, bounds: Bounds = QUICK, key: str = "", **options: object) -> str:
    endpoint = Endpoint(server.address.partition("#")[0], "tiny", key)
    chat = Chat(endpoint, bounds, pause=lambda seconds: None)
    return chat.complete("Be brief.", [text_part("Hello?")], **options)  # type: ignore[arg-type]


def _fault(answer: Answer | Reply, bounds: Bounds = QUICK, key: str = "") -> str:
    with chat_server(answer) as server, pytest.raises(ChatError) as caught:
        _ask(server, bounds, key)
    assert str(server.port) in str(caught.value), "the message names the server"
    return str(caught.value)


def test_a_question_is_sent_as_the_protocol_has_it_and_its_answer_comes_back() -> None:
    with chat_server(says("Hi.")) as server:
        chat = Chat(Endpoint.parse(server.address, {"WHENABOUTS_CHAT_KEY": "a-key"}))
        answer = chat.complete(
            "Be brief.", [text_part("What is it?"), picture_part(b"\xff\xd8")], schema=SCHEMA
        )
    assert answer == "Hi."
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["authorization"] == "Bearer a-key"
    (body,) = server.requests
    assert (body["model"], body["temperature"], body["stream"]) == ("tiny", 0.0, False)
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    picture = body["messages"][1]["content"][1]["image_url"]["url"]
    assert picture == "data:image/jpeg;base64,/9g="
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


def test_without_a_key_none_is_sent() -> None:
    with chat_server(says("Hi.")) as server:
        _ask(server)
    assert "authorization" not in server.headers[0]


def test_a_server_that_knows_no_forms_of_answers_is_asked_without() -> None:
    def answer(request: dict[str, object]) -> Reply:
        return Reply(status=400) if "response_format" in request else says("Hi.")

    with chat_server(answer) as server:
        assert _ask(server, schema=SCHEMA) == "Hi."
    assert len(server.requests) == 2


def test_faults_that_may_pass_are_tried_again() -> None:
    replies = iter([Reply(status=503), Reply(status=429, headers={"Retry-After": "1"}), says("Hi.")])
    pauses: list[float] = []
    with chat_server(lambda _: next(replies)) as server:
        chat = Chat(Endpoint.parse(server.address, {}), QUICK, pause=pauses.append)
        assert chat.complete("", [text_part("Hello?")]) == "Hi."
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize(("headers", "remedy"), [({"Retry-After": "600"}, "in 600 s"), ({}, "again later")])
def test_a_server_that_has_too_much_to_do_is_not_waited_for_longer_than_allowed(
    headers: dict[str, str], remedy: str
) -> None:
    assert remedy in _fault(Reply(b'{"error": {"message": "slow down"}}', 429, headers))


def test_a_date_to_come_again_is_understood() -> None:
    headers = {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}
    assert "in 86400 s" in _fault(Reply(b"", 503 and 429, headers))


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "inf", "1e999", "9" * 400, "Wed, 99 Foo"])
def test_a_strange_time_to_come_again_is_none(value: str) -> None:
    assert "429" in _fault(Reply(b"", 429, {"Retry-After": value}), Bounds(seconds=3.0))


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    began = time.monotonic()
    assert "has not answered within 0.5 s" in _fault(Reply(hangs=True), Bounds(seconds=0.5))
    assert time.monotonic() - began < 3


def test_a_server_that_sends_a_byte_now_and_then_is_given_up_in_time() -> None:
    began = time.monotonic()
    reply = says("Hi.")
    reply.drip = 0.2
    assert "has not answered within 0.8 s" in _fault(reply, Bounds(seconds=0.8))
    assert time.monotonic() - began < 3


def test_a_server_that_breaks_off_is_said_to() -> None:
    reply = says("Hello there")
    reply.breaks = True
    assert "broke off" in _fault(reply)


def test_nothing_that_listens_is_said_plainly() -> None:
    with chat_server(says("")) as server:
        pass
    with pytest.raises(ChatUnreachable, match="nothing answers at 127"):
        _ask(server)


def test_an_answer_without_end_is_not_read() -> None:
    assert "more than 2,000 bytes" in _fault(Reply(b" " * 3000), Bounds(5.0, 3, 2000))


def test_a_redirect_is_not_followed() -> None:
    with chat_server(says("I am another one")) as other:
        message = _fault(Reply(status=307, headers={"Location": f"http://127.0.0.1:{other.port}/v1"}))
    assert "not followed" in message
    assert other.requests == []
    assert "redirects ([::1)" in _fault(Reply(status=307, headers={"Location": "http://[::1/v1"}))
    assert "redirects (without a target)" in _fault(Reply(status=307, headers={"Location": "/v2"}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": "no"}]}',
        b'{"choices": {"a": 1}}',
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"choices": [{"message": {"content": "a"}}] * 2}).encode(),
    ],
)
def test_an_answer_that_is_none_is_refused(body: bytes) -> None:
    assert "not like a chat endpoint" in _fault(Reply(body))


def test_an_empty_or_cut_answer_is_refused() -> None:
    assert "gives no answer" in _fault(says(None))
    assert "gives no answer" in _fault(says("  "))
    for begun in ("Once upon", "", None):  # a model that thinks first may have no answer yet
        assert "cut off" in _fault(says(begun, finish_reason="length"))


@pytest.mark.parametrize(("status", "remedy"), [(401, "KEY"), (404, "/v1"), (500, "log"), (413, "fewer")])
def test_each_refusal_names_its_remedy(status: int, remedy: str) -> None:
    message = _fault(Reply(b'{"error": {"message": "no"}}', status))
    assert f"answers {status} (no)" in message
    assert remedy in message


def test_the_key_stands_in_no_message_and_hostile_words_on_one_short_line() -> None:
    error = {"error": {"message": "bad key sk-secret\n\x1b[31m" + "!" * 5000}}
    message = _fault(Reply(json.dumps(error).encode(), 401), key="sk-secret")
    assert "sk-secret" not in message
    assert message.isprintable()
    assert len(message) < 500
    assert "sk-secret" not in repr(Endpoint("https://a.example/v1", "m", "sk-secret"))


@pytest.mark.parametrize(
    "address",
    [
        "ftp://a.example/v1#m",
        "http://#m",
        "http://a.example:99999/v1#m",
        "http://a.example/v1?x=1#m",
        "http://a.example/v1",
        "http://a.example/v1#a#b\n",
        "http://user:word@a.example/v1#m",
        "http://[::1/v1#m",
        "http://a.exa mple/v1#m",
        "http://a.example/v1\r\nX: y#m",
        "http://ä.example/v1#m",
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError):
        Endpoint.parse(address, {})


def test_a_key_is_not_sent_in_the_open_to_another_machine() -> None:
    with pytest.raises(UsageError, match="without encryption"):
        Endpoint.parse("http://a.example/v1#m", {"WHENABOUTS_CHAT_KEY": "k"})
    with pytest.raises(UsageError, match="characters that no key has"):
        Endpoint.parse("https://a.example/v1#m", {"WHENABOUTS_CHAT_KEY": "k\r\nX: y"})


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("[::1]", True), ("10.0.0.1", False),
     ("localhost.example", False), ("127.0.0.1.example", False), ("0.0.0.0", False)],
)  # fmt: skip
def test_what_is_this_machine_is_told_by_its_name(host: str, is_here: bool) -> None:
    assert Endpoint.parse(f"http://{host}:1/v1#m", {}).is_loopback is is_here
