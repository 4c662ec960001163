"""What every part of the emulator works with, made once by the server."""

from collections.abc import Callable
from dataclasses import dataclass

from deploy.local.job_service.clock import Clock
from deploy.local.job_service.faults import Faults
from deploy.local.job_service.logs import Logs
from deploy.local.job_service.loop import Loop
from deploy.local.job_service.options import Options
from deploy.local.job_service.processes import Watcher
from deploy.local.job_service.store import Store


@dataclass
class Services:
    """Passed to whoever needs more than one of them."""

    options: Options
    store: Store
    logs: Logs
    clock: Clock
    loop: Loop
    watcher: Watcher
    faults: Faults
    project_number: Callable[[str], str]
    url: Callable[[], str]

    @property
    def mark(self) -> str:
        """How all processes of this emulator are found again: see `marked`."""
        return f"{self.options.state.absolute()}#"
