"""Dated records of green runs on real engines, written by `refitcheck real keep`; `real_runs.validation` reads them."""
