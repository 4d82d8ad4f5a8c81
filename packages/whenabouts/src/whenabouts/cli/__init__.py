"""Parse, call, show; no logic of its own."""
