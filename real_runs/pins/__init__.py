"""Requirement files for environments of real SGLang versions; `real_runs.env.pins` says which belong to a version."""
