"""Drives a system under test against engines, records what happened, judges it, reports."""
