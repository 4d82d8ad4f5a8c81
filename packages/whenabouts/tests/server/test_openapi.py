"""The OpenAPI description is complete and true: schemathesis sends valid and invalid requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.config import SchemathesisConfig
from starlette.types import Receive, Scope, Send
from tests.server.conftest import Client

from whenabouts import plugins
from whenabouts.corpus import Corpus
from whenabouts.server.app import Application
from whenabouts.server.settings import Limits, Settings

ROUTES = {
    "/api/search": {"get", "post"},
    "/api/why": {"get"},
    "/api/export": {"get"},
    "/api/videos": {"get"},
    "/api/videos/{video_id}": {"get"},
    "/api/videos/{video_id}/people": {"get"},
    "/api/videos/{video_id}/relocate": {"post"},
    "/api/facets": {"get"},
    "/api/people": {"get"},
    "/api/people/name": {"post"},
    "/api/people/merge": {"post"},
    "/api/people/undo": {"post"},
    "/api/people/forget": {"post"},
    "/api/videos/{video_id}/cues": {"get"},
    "/api/videos/{video_id}/texts": {"get"},
    "/api/videos/{video_id}/file": {"get"},
    "/api/videos/{video_id}/thumbnail": {"get"},
    "/api/videos/{video_id}/transcript": {"get"},
    "/api/videos/{video_id}/clip": {"get"},
    "/api/videos/{video_id}/curves": {"get"},
    "/api/collections": {"get", "post"},
    "/api/collections/{collection}": {"get", "patch", "delete"},
    "/api/collections/{collection}/items": {"post"},
    "/api/collections/{collection}/items/{item}": {"patch", "delete"},
    "/api/collections/{collection}/items/{item}/move": {"post"},
    "/api/collections/{collection}/export": {"get"},
    "/api/collections/{collection}/film": {"get"},
    "/api/saved-searches": {"get", "post"},
    "/api/saved-searches/{name}": {"delete"},
    "/api/folders": {"get"},
    "/api/jobs": {"get", "post"},
    "/api/jobs/offer": {"get"},
    "/api/jobs/failed": {"get"},
    "/api/jobs/retry": {"post"},
    "/api/jobs/remove": {"post"},
    "/api/jobs/{job}": {"get", "post", "delete"},
    "/api/watched": {"post"},
    "/api/access": {"get"},
    "/api/stats": {"get"},
    "/api/health": {"get"},
    "/api/ready": {"get"},
    "/metrics": {"get"},
}
if plugins.entries("routes"):  # those of trained systems
    ROUTES |= {"/api/explain": {"get"}, "/api/videos/{video_id}/highlights": {"get"}}
# Requests that fit the schema may still be refused, such as an end before its start.
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
    checks.allow_header_conformance,
    checks.missing_required_header,
    checks.use_after_free,
    checks.ensure_resource_availability,
    checks.ignored_auth,
    checks.object_level_authorization,
]


def test_every_route_is_described_with_its_errors(client: Client) -> None:
    described = client.json("/openapi.json")
    assert {path: set(operations) for path, operations in described["paths"].items()} == ROUTES
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert {"200", "400", "401", "403", "413", "429", "500", "503"} <= set(operation["responses"])
            assert "422" not in operation["responses"]
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert "ErrorBody" in str(answer["content"]["application/json"]["schema"]), (path, status)
    assert "HTTPValidationError" not in described["components"]["schemas"]


def test_the_answer_to_a_body_that_is_too_large_is_described(described: Any) -> None:
    body = {"name": "many", "question": {"q": "ships"}, "moments": ["a" * (1 << 17)]}
    case = described["/api/saved-searches"]["post"].Case(body=body, media_type="application/json")
    answer = case.call()
    assert answer.status_code == 413
    case.validate_response(answer, checks=CHECKS[1:5])


class AsLocalhost:
    """The application under the host name localhost; schemathesis would ask for "testserver".

    It stays started; schemathesis alone would start and end it for each request.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] == "http":
            others = [pair for pair in scope["headers"] if pair[0] != b"host"]
            scope = {**scope, "headers": [(b"host", b"localhost"), *others]}
        await self._application(scope, receive, send)


@pytest.fixture(scope="module")
def described(indexed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The OpenAPI description with its application, for schemathesis."""
    settings = Settings(limits=Limits(clips_a_minute=100_000), cache=tmp_path_factory.mktemp("cache"))
    application = Application(Corpus(indexed, create=False), settings)
    # An invalid body may also be too large, and that is answered first.
    rejected = {"expected-statuses": ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422"]}
    config = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": rejected}})
    yield schemathesis.openapi.from_asgi("/openapi.json", AsLocalhost(application), config=config)
    application.service.close()


def ask(described: Any, path: str, method: str, mode: GenerationMode, examples: int) -> None:
    operation = described[path][method]

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    try:
        run()
    except Unsatisfiable:
        # A route without parameters has no invalid requests.
        assert mode is GenerationMode.NEGATIVE


EVERY = [(path, method) for path, methods in ROUTES.items() for method in sorted(methods)]


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize(("path", "method"), EVERY)
def test_the_routes_do_what_their_description_says(
    described: Any, path: str, method: str, mode: GenerationMode
) -> None:
    ask(described, path, method, mode, 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize(("path", "method"), EVERY)
def test_the_routes_do_what_their_description_says_however_they_are_asked(
    described: Any, path: str, method: str, mode: GenerationMode
) -> None:
    ask(described, path, method, mode, 200)
