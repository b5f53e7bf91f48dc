"""Adapters for public frameworks: their own code, unmodified, in trainer processes of its own, against the lane's urls.

`table.py` lists every framework with what it can do and how it is installed. `remote.py` is the side of the harness;
`zygote.py` and `rank.py` are the processes that hold the framework; `drivers/` call it. No code of a framework is here.
"""
