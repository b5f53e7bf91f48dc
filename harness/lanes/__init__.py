"""Lanes: where engines come from."""
