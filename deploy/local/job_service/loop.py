"""One thread that does everything that changes a job, in order: what was posted, and what is due."""

import contextlib
import heapq
import itertools
import queue
import threading
import traceback
from collections.abc import Callable

from deploy.local.job_service.clock import Clock

Call = Callable[[], None]
_LONGEST_WAIT = 60.0


class Loop:
    """Runs calls one after the other. One that raises is reported and does not end the thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._posted: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._due: list[tuple[float, int, Call]] = []
        self._number = itertools.count()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, call: Call) -> None:
        """Have `call` run soon. From any thread."""
        self._posted.put(call)

    def after(self, seconds: float, call: Call) -> None:
        """Have `call` run after `seconds` of the emulator's clock. From the loop's own thread."""
        heapq.heappush(self._due, (self._clock.now() + seconds, next(self._number), call))

    def after_real(self, seconds: float, call: Call) -> None:
        """Have `call` run after `seconds` of the wall's clock, whatever the emulator's does. From any thread."""
        timer = threading.Timer(seconds, self.post, [call])
        timer.daemon = True
        timer.start()

    def wake(self) -> None:
        """Look at the clock again: it was put forward."""
        self._posted.put(lambda: None)

    def stop(self) -> None:
        self._posted.put(None)
        self._thread.join(10)

    def _run(self) -> None:
        while True:
            try:
                call = self._posted.get(timeout=self._wait())
            except queue.Empty:
                call = _nothing
            if call is None:
                return
            self._do(call)
            while self._due and self._due[0][0] <= self._clock.now():
                self._do(heapq.heappop(self._due)[2])

    def _wait(self) -> float:
        if not self._due:
            return _LONGEST_WAIT
        return min(_LONGEST_WAIT, self._clock.real_seconds(self._due[0][0] - self._clock.now()))

    def _do(self, call: Call) -> None:
        try:
            call()
        except Exception:
            with contextlib.suppress(OSError):  # the disk that the report goes to is full: go on
                traceback.print_exc()


def _nothing() -> None:
    """Nothing was posted; something may be due."""
