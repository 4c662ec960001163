"""The pictures of the page in docs/screenshots: a real stack, the demo's dataset, a real Chromium.

    python -m bench.screenshots [FOLDER]

About two minutes. What they show was trained while they were taken.
"""

import sys
import tempfile
import time
from pathlib import Path

from kickoff.clients import Clients
from kickoff.runs import Run, State
from kickoff.settings import Settings
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from deploy.demo_data import SCENES, upload
from deploy.follow import follow
from deploy.local.stack import PROJECT, TRAINER_IMAGE, Stack
from tests.chromium import emulate, missing, open_chromium

FOLDER = Path(__file__).parents[1] / "docs" / "screenshots"
DEADLINE = 300.0
PHONE = 390


def main(folder: Path) -> None:
    if absent := missing():
        sys.exit(f"not installed: {absent}")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="kickoff-pictures-") as state,
        Stack(Path(state) / "stack", say=print, sweep_seconds=2) as stack,
        open_chromium(Path(state) / "profile") as browser,
    ):
        take_all(stack, Clients(Settings.from_environ(stack.environ)), browser, folder)


def take_all(stack: Stack, clients: Clients, browser: Chrome, folder: Path) -> None:
    ask_for_others(stack, clients)
    list(upload(stack.urls["storage"], SCENES["digits"]))
    page = stack.urls["dashboard"]
    run = wait_for_state(clients, State.RUNNING)
    for news in follow(clients.ledger, run.run_id, DEADLINE, stack.check):
        if getattr(news, "epoch", 0) == 5:
            browser.get(f"{page}/")
            take(browser, folder / "list.png", 560)
    ended = clients.ledger.get_run(run.run_id)
    assert ended and ended.state is State.SUCCEEDED, ended
    browser.get(f"{page}/runs/{run.run_id}")
    take(browser, folder / "run-light.png", 1000)
    take(browser, folder / "run-dark.png", 1000, scheme="dark")
    take(browser, folder / "phone.png", 844, scheme="dark", width=PHONE)
    failed = next(iter(clients.ledger.find_runs(states=[State.FAILED])))
    browser.get(f"{page}/runs/{failed.run_id}")
    time.sleep(1)
    take(browser, folder / "failed.png", 1000)


def ask_for_others(stack: Stack, clients: Clients) -> None:
    """A job that fails, one that is cancelled, a request that is refused, a dataset that waits for its marker."""
    from tests.test_browser import publish, storage

    tell = "echo 'reading the data'; echo \"FileNotFoundError: gs://kickoff-local-data/flowers/labels.csv\" >&2; exit 2"
    publish(stack, {"worker_pool_specs": [pool(tell)]})
    wait_for_state(clients, State.FAILED)
    publish(stack, {"worker_pool_specs": [pool("sleep 300")], "idempotency_key": "nightly"})
    publish(stack, {"recipe": "digits", "replicas": 0, "epoch": 3})
    storage(stack).bucket(f"{PROJECT}-data").blob("datasets/cassava/0/1.jpg").upload_from_string(b"waits")
    asleep = wait_for_state(clients, State.RUNNING)
    clients.vertex.cancel(asleep.job.name if asleep.job else "")
    for state in (State.CANCELLED, State.REJECTED):
        wait_for_state(clients, state)


def pool(script: str) -> dict[str, object]:
    container = {"image_uri": TRAINER_IMAGE, "command": ["sh", "-c", script]}
    return {"replica_count": 1, "machine_spec": {"machine_type": "n1-standard-4"}, "container_spec": container}


def wait_for_state(clients: Clients, state: State) -> Run:
    """The newest run in that state, once there is one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := clients.ledger.find_runs(states=[state], limit=1):
            return found[0]
        time.sleep(0.2)
    sys.exit(f"no run became {state} within 120 s")


def take(browser: Chrome, path: Path, height: int, scheme: str = "light", width: int = 1120) -> None:
    emulate(browser, scheme, width=width, height=height)
    browser.find_element(By.TAG_NAME, "body")
    path.write_bytes(browser.get_screenshot_as_png())
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
