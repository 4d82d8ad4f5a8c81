"""Routes that this package adds to the server, through the entry points `whenabouts.routes`."""
