"""The recording proxy: a transparent HTTP proxy in front of real servers that writes the history that a fake would.

Bodies stream through in both directions. Of what passes only what judges need is written: the calls of the control
plane; of a generation how long its prompt was, never what it said; no key.
"""
