"""SIGTERM as a request: the loop stops at the end of its step, on all replicas at once, with a checkpoint."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Self

from trainer.errors import Terminated

GRACE_SECONDS = 20.0
"""Vertex AI kills some 30 s after SIGTERM; by then the process should have said why it ends."""


class Termination:
    """`requested` turns True at the first SIGTERM. If the step never ends (a peer is gone), the process does."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.requested = False
        self._grace = grace

    @classmethod
    def install(cls) -> Self:
        termination = cls()
        signal.signal(signal.SIGTERM, termination._handle)
        return termination

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            timer = threading.Timer(self._grace, self._give_up)
            timer.daemon = True
            timer.start()

    def _give_up(self) -> None:
        print(
            f"trainer: SIGTERM: the step did not end within {self._grace:g} s; no checkpoint",
            file=sys.stderr,
            flush=True,
        )
        os._exit(Terminated.exit_status)
