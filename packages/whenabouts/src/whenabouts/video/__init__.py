"""A video file: its contents, frames with exact times, words, and shots."""

import os

# ONNX Runtime, also within rapidocr and faster-whisper, would contact its maker's host and keep a device id
# on disk. It reads this when it is imported, and every room that runs it imports this one before.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
