"""Routes that trained systems add to the server."""
