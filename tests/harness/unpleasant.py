"""Clients of the fake engines that no process should have to live with."""

from __future__ import annotations

import threading
import time

from tests.examples.minimal_adapter import Adapter


class Stubborn(Adapter):
    """Hangs, and catches whatever would end that."""

    def refit(self, deadline_s):
        while True:
            try:
                time.sleep(1e6)
            except BaseException:
                continue


class Lingers(Adapter):
    """Leaves a thread behind that is no daemon and never ends."""

    def setup(self, fleet):
        super().setup(fleet)
        threading.Thread(target=threading.Event().wait).start()
