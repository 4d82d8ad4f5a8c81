"""A corpus to serve, as the product tests its server."""

from tests.server.conftest import client, indexed, opened

__all__ = ["client", "indexed", "opened"]
