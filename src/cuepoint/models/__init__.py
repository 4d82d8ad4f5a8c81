"""One file per system that finds moments; the folder is the registry."""
