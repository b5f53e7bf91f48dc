"""A real trainer beside the fakes: megatron-bridge on CPU exports the policy that the reference client sends.

`bridge_*.py` run in an environment of their own (`refitcheck env make megatron-bridge`), which does not know this
project; everything else runs here.
"""
