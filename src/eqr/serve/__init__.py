"""Serving: puzzles in, answers out, over HTTP, and the page on which one watches (extra `serve`)."""
