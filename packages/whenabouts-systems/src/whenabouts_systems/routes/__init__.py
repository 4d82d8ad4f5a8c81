"""Routes that trained systems add to the server, through the entry points `whenabouts.routes`."""
