"""Measuring: candidates tables, metrics, cost, diagnostics and figures."""
