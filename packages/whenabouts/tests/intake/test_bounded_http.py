"""Requests end, also against servers that say nothing, drip, never finish a handshake or never end."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from whenabouts.intake.bounded_http import Reply, RequestFailed, send
from whenabouts.types import UsageError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"


@contextmanager
def serving(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server of bare sockets: `answer` is called with each connection, whose request is not read."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=call, args=(connection,), daemon=True).start()

        def call(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                answer(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        server.shutdown(socket.SHUT_RDWR)


def _drip(data: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        for byte in data * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    return answer


def _say(data: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(data)

    return answer


def _ask(
    url: str, seconds: float = 5.0, idle_seconds: float | None = None, most_bytes: int = 1 << 20
) -> Reply:
    return send("GET", url, headers={}, seconds=seconds, idle_seconds=idle_seconds, most_bytes=most_bytes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        ("http", lambda connection: time.sleep(5)),
        ("http", _drip(b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 60)),
        ("http", _drip(b"HTTP/1.1 102 Processing\r\n\r\n")),
        ("http", _drip(HEAD[:-3] + b"000000\r\n\r\n" + b"a" * 1000)),
        ("https", lambda connection: time.sleep(5)),
        ("https", _drip(b"\x16\x03\x03\x00\xff")),
    ],
    ids=["silence", "head", "informational", "body", "no handshake", "a handshake byte by byte"],
)
def test_a_request_ends_at_its_deadline_wherever_it_is(
    scheme: str, answer: Callable[[socket.socket], object]
) -> None:
    began = time.monotonic()
    with serving(answer) as url, pytest.raises(TimeoutError):
        _ask(url.replace("http", scheme), seconds=0.5)
    assert time.monotonic() - began < 2
    gc.collect()  # a connection that is left open is a warning, and so an error


def test_a_deadline_that_has_passed_sends_nothing() -> None:
    asked: list[socket.socket] = []
    with serving(asked.append) as url, pytest.raises(TimeoutError):
        _ask(url, seconds=-1.0)
    assert asked == []


def test_a_server_that_falls_silent_is_left_earlier() -> None:
    began = time.monotonic()
    with serving(lambda connection: time.sleep(5)) as url, pytest.raises(RequestFailed):
        _ask(url, seconds=60.0, idle_seconds=0.3)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
def test_a_body_without_end_is_read_as_far_as_the_budget(head: bytes) -> None:
    sent = 0

    def answer(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(head)
        block = b"a" * 1000
        while True:
            connection.sendall(b"3e8\r\n" + block + b"\r\n" if b"chunked" in head else block)
            sent += 1000

    with serving(answer) as url:
        reply = _ask(url, most_bytes=5000)
    assert (reply.body, reply.is_whole) == (b"a" * 5000, False)
    assert sent < 20 << 20


@pytest.mark.parametrize(("most_bytes", "is_whole"), [(2, False), (3, True), (4, True)])
def test_the_budget_is_exact(most_bytes: int, is_whole: bool) -> None:
    with serving(_say(HEAD + b"\r\nabc")) as url:
        reply = _ask(url, most_bytes=most_bytes)
    assert (reply.body, reply.is_whole) == (b"abc"[:most_bytes], is_whole)


def test_a_compressed_body_is_not_unpacked() -> None:
    with serving(_say(HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08")) as url:
        assert _ask(url).body == b"\x1f\x8b\x08"


def test_what_a_sink_raises_is_raised() -> None:
    def sink(reply: Reply) -> tuple[Callable[[bytes], object], int]:
        def write(block: bytes) -> None:
            raise OSError(28, "No space left on device")

        return write, 10

    with serving(_say(HEAD + b"\r\nabc")) as url, pytest.raises(OSError, match="No space left") as caught:
        send("GET", url, headers={}, seconds=5.0, sink=sink)
    assert not isinstance(caught.value, RequestFailed)


@pytest.mark.parametrize(
    "answer",
    [_say(HEAD + b"\r\na"), _say(b"SSH-2.0\r\n"), socket.socket.close],
    ids=["cut off", "another protocol", "hangs up"],
)
def test_a_broken_answer_is_a_failed_request(answer: Callable[[socket.socket], object]) -> None:
    with serving(answer) as url, pytest.raises(RequestFailed):
        _ask(url)


def test_the_cause_is_the_fault_below_the_client() -> None:
    with serving(socket.socket.close) as url:
        pass
    for address, cause in ((url, ConnectionRefusedError), ("http://none.invalid/", socket.gaierror)):
        with pytest.raises(RequestFailed) as caught:
            _ask(address)
        assert isinstance(caught.value.__cause__, cause)


def test_a_request_may_be_made_inside_an_event_loop() -> None:
    async def cell() -> bytes:
        return _ask(url).body

    with serving(_say(HEAD + b"\r\nabc")) as url:
        assert asyncio.run(cell()) == b"abc"


def test_a_direct_request_goes_to_no_proxy_and_follows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    away = b"HTTP/1.1 307 Elsewhere\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    with serving(_say(away)) as url, serving(_say(HEAD + b"\r\nabc")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.setenv("http_proxy", proxy)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert (_ask(url).status, _ask(url).headers["location"]) == (307, "http://127.0.0.1:9/")
        assert send("GET", url, headers={}, seconds=5.0, is_direct=False).body == b"abc"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its own certificate for 127.0.0.1, which nobody has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(plain + signed.public_bytes(serialization.Encoding.PEM))
    return file


def test_a_certificate_that_nobody_vouches_for_is_refused_unless_it_is_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            _say(HEAD + b"\r\nabc")(encrypted)

    with serving(answer) as plain:
        url = plain.replace("http", "https")
        with pytest.raises(RequestFailed) as caught:
            _ask(url)
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert _ask(url).body == b"abc"


@pytest.mark.parametrize(("text", "reason"), [(None, "No such file"), ("none here", "no certificate")])
def test_a_file_without_certificates_is_named_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, reason: str
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(UsageError, match=rf"{reason}.* SSL_CERT_FILE is {file}"):
        _ask("http://127.0.0.1:9/")
