"""A video file: its contents, frames with exact times, words, and shots."""
