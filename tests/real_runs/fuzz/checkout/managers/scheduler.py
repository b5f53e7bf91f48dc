"""The methods of a scheduler that an oracle takes out of its source; ours."""

import a_module_that_is_never_imported  # noqa: F401


class Scheduler:
    @never_applied  # noqa: F821
    def is_fully_idle(self, ignore_waiting: "No" = False) -> "Neither":  # noqa: F821
        return self.running_batch.is_empty() and not len(self.waiting_queue) and not self.some_queue.anything()

    def flush_cache(self, empty_cache=True):
        return self.is_fully_idle()

    def other(self):
        raise NotImplementedError
