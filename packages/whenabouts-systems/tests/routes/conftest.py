"""A server to ask, as the product tests its own routes."""

from tests.server.conftest import client, friday, indexed, opened

__all__ = ["client", "friday", "indexed", "opened"]
