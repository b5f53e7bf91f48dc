"""Runs on one machine, on a Ray cluster and under Slurm: recipes as data, launchers rendered from them."""
