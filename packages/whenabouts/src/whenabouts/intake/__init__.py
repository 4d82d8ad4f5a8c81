"""Validation of all bytes from outside: files, hubs, replies and checkpoints become checked values here."""
