"""Diagnostics: what a model does inside, from traces to landscapes, stability and training."""
