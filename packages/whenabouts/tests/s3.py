"""S3 servers for tests, and a proxy in front of them that fails on request.

`ceph` is Debian's Ceph Object Gateway (radosgw, ceph-mon, ceph-osd), a store that is used in production;
`s3rver` (npm) takes every put, conditional or not; `moto` is the mock that is always installed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

_CEPH = """
[global]
fsid = {fsid}
mon_host = [v1:127.0.0.1:{mon_port}]
mon_data = {folder}/mon
osd_data = {folder}/osd
run_dir = {folder}
admin_socket = {folder}/$name.$pid.asok
pid_file =
log_file = {folder}/$name.log
crash_dir = {folder}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_bind_ipv6 = false
public_addr = 127.0.0.1
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
osd_crush_chooseleaf_type = 0
osd_class_update_on_start = false
osd_crush_update_on_start = false
auth_allow_insecure_global_id_reclaim = true
osd_objectstore = memstore
memstore_device_bytes = 1073741824
rgw_frontends = beast endpoint=127.0.0.1:{port}
"""


@dataclass(frozen=True)
class Server:
    """The address of a store on this machine, or of a proxy in front of it."""

    name: str
    endpoint: str
    access: str = "test"
    secret: str = "secretsecret"

    @property
    def options(self) -> dict[str, str]:
        """The storage options of a corpus on this server."""
        return {
            "aws_access_key_id": self.access,
            "aws_secret_access_key": self.secret,
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The storage options as environment variables."""
        long = {key if key.startswith("aws_") else f"aws_{key}": value for key, value in self.options.items()}
        return {key.upper(): value for key, value in long.items()}

    def client(self) -> Any:
        """A boto3 client, for changes that tests make without the program."""
        boto3 = pytest.importorskip("boto3")
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access,
            aws_secret_access_key=self.secret,
            region_name="us-east-1",
        )

    def bucket(self) -> str:
        """The name of a new bucket."""
        name = f"corpora-{uuid.uuid4().hex[:8]}"
        self.client().create_bucket(Bucket=name)
        return name


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    """Run a server by its name; skips the test if its programs are not installed."""
    with {"ceph": _ceph, "s3rver": _s3rver, "moto": _moto}[name](folder) as server:
        yield server


@contextlib.contextmanager
def _moto(_: Path) -> Iterator[Server]:
    application = pytest.importorskip("moto.server")
    serving = pytest.importorskip("werkzeug.serving")
    made = application.DomainDispatcherApplication(application.create_backend_app)
    server = serving.make_server("127.0.0.1", 0, made, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Server("moto", f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def _s3rver(folder: Path) -> Iterator[Server]:
    program = shutil.which("s3rver")
    if program is None:
        pytest.skip("needs s3rver (npm install -g s3rver)")
    port = free_port()
    command = [program, "-d", str(folder), "-p", str(port), "--silent"]
    with _daemon(command, folder / "s3rver.out"):
        _until_it_answers(port)
        yield Server("s3rver", f"http://127.0.0.1:{port}", "S3RVER", "S3RVER")


@contextlib.contextmanager
def _ceph(folder: Path) -> Iterator[Server]:
    """Start a monitor, a disk in memory and a gateway, which answer after about 12 s."""
    missing = [name for name in ("ceph-mon", "ceph-osd", "radosgw", "ceph") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (apt install radosgw ceph-mon ceph-osd)")
    fsid, disk, mon_port, port = str(uuid.uuid4()), str(uuid.uuid4()), free_port(), free_port()
    for name in ("mon", "osd"):
        (folder / name).mkdir()
    config = folder / "ceph.conf"
    config.write_text(_CEPH.format(folder=folder, fsid=fsid, mon_port=mon_port, port=port))
    environment = {**os.environ, "CEPH_CONF": str(config)}

    def run(*command: str) -> None:
        subprocess.run(
            command, env=environment, cwd=folder, check=True, capture_output=True, timeout=120, text=True
        )

    def daemon(*command: str) -> contextlib.AbstractContextManager[None]:
        return _daemon(list(command), folder / f"{command[0]}.out", environment)

    run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{mon_port}]", "monmap")
    run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap")
    with daemon("ceph-mon", "-i", "a", "-f"):
        run("ceph", "osd", "new", disk)
        # The disk would do this itself, but sometimes dies because the monitor does not permit it yet.
        run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=here")
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        with daemon("ceph-osd", "-i", "0", "-f"):
            user = ("--uid=test", "--display-name=test", "--access-key=test", "--secret-key=secretsecret")
            run("radosgw-admin", "user", "create", *user)
            with daemon("radosgw", "-f", "-n", "client.rgw"):
                _until_it_answers(port)
                yield Server("ceph", f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def _daemon(command: list[str], out: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    with out.open("wb") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()


def _until_it_answers(port: int) -> None:
    for _ in range(600):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("GET", "/")
            with connection.getresponse() as answer:
                answer.read()
            return
        time.sleep(0.1)
    pytest.fail(f"nothing answers on port {port}")


@dataclass(frozen=True)
class Request:
    """A request to a proxy."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Fault:
    """How the proxy fails a request.

    `status` and `code` are an error in S3's format; `seconds` is a delay; `cut` sends half of the answer and
    disconnects; `lost` passes the request on and disconnects without an answer.
    """

    status: int = 0
    code: str = ""
    seconds: float = 0.0
    cut: bool = False
    lost: bool = False


class Proxy:
    """Passes requests on to a server; `fault` gives the fault of each request (None: no fault)."""

    def __init__(self, behind: Server) -> None:
        self.fault: Callable[[Request], Fault | None] = lambda request: None
        self.asked: list[Request] = []
        self.sent = 0
        port = int(behind.endpoint.rsplit(":", 1)[1])
        handler = type("Handler", (_Handler,), {"proxy": self, "port": port})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self.server = Server(
            behind.name, f"http://127.0.0.1:{self._http.server_port}", behind.access, behind.secret
        )

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def well(self) -> None:
        """Answer without faults from now on."""
        self.fault = lambda request: None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    port: int

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(
            self.command, self.path, {key.lower(): value for key, value in self.headers.items()}
        )
        self.proxy.asked.append(request)
        fault = self.proxy.fault(request)
        time.sleep(fault.seconds if fault else 0.0)
        if fault and fault.status:
            text = f"<Error><Code>{fault.code}</Code><Message>{fault.code}</Message></Error>".encode()
            self._send(fault.status, [("Content-Type", "application/xml")], text)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for key, value in self.headers.items():
            connection.putheader(key, value)
        connection.endheaders(body or None)
        with contextlib.closing(connection), connection.getresponse() as answer:
            data = answer.read()
        if fault and fault.lost:
            self.close_connection = True
            return
        self._send(answer.status, answer.getheaders(), data, half=bool(fault and fault.cut))

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, *, half: bool = False) -> None:
        is_head = self.command == "HEAD"
        self.send_response_only(status)
        for key, value in headers:
            if key.lower() not in (
                "transfer-encoding",
                "connection",
                *(() if is_head else ("content-length",)),
            ):
                self.send_header(key, value)
        if not is_head:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if is_head:
            return
        data = data[: len(data) // 2] if half else data
        self.proxy.sent += len(data)
        with contextlib.suppress(OSError):
            self.wfile.write(data)
        self.close_connection = self.close_connection or half

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Log nothing."""
