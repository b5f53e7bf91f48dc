"""Adapters for public frameworks."""
