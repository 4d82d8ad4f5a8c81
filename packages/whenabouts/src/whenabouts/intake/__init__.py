"""The one door for bytes from outside: files, hubs, replies, checkpoints become checked values here."""
