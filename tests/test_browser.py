"""The page in a real Chromium: watched while a run trains, used by keyboard, read without a script."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kickoff.clients import Clients
from kickoff.progress import list_epochs
from kickoff.runs import Change, JobRecord, Run, State, Trigger
from kickoff.settings import Settings
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By

from deploy.digits import digit_files
from deploy.local.stack import PROJECT, TRAINER_IMAGE, Stack
from tests.chromium import emulate, missing, open_chromium
from tests.kickoff.making import make_run

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}"),
]
HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"

RECIPE = """
name: tiny
when:
  upload: {bucket: "{project}-data", root: tiny/, match: "**/*.png", complete: {marker: _SUCCESS}}
job:
  image: "{trainer_image}"
  replicas: 1
  machine_type: n1-standard-4
  args: {model: digits, data: "{dataset.snapshot}", epochs: 3, batch-size: 16, image-size: 8, seed: 7}
  scheduling: {timeout: 10m}
  output: "gs://{project}-models/tiny/{run_id}"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own, whose one recipe trains for seconds: what it records disturbs no other test."""
    state = tmp_path_factory.mktemp("browser")
    recipes = state / "recipes"
    recipes.mkdir()
    (recipes / "tiny.yaml").write_text(RECIPE)
    with Stack(state / "stack", recipes=recipes, sweep_seconds=1) as running:
        yield running


@pytest.fixture(scope="module")
def clients(site: Stack) -> Clients:
    return Clients(Settings.from_environ(site.environ))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Chrome) -> Iterator[Chrome]:
    """The browser, which must have nothing to complain of: no script error, no breach of the policy."""
    emulate(chromium)
    yield chromium
    entries = chromium.get_log("browser")  # type: ignore[no-untyped-call]
    complaints = [entry["message"] for entry in entries if entry["level"] != "INFO"]
    assert complaints == []


def eventually(probe: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := probe():
            return answer
        time.sleep(0.2)
    raise AssertionError(f"{what} did not come within {seconds:.0f} s")


def storage(site: Stack) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    options = {"api_endpoint": site.urls["storage"]}
    return storage.Client(project=PROJECT, credentials=AnonymousCredentials(), client_options=options)


def upload(site: Stack, count: int = 120) -> None:
    bucket = storage(site).bucket(f"{PROJECT}-data")
    for name, png in list(digit_files())[:count]:
        bucket.blob(f"tiny/{name}").upload_from_string(png, content_type="image/png")
    bucket.blob("tiny/_SUCCESS").upload_from_string(b"")


def text(browser: Chrome, selector: str) -> str:
    """The text of the first such element now, empty where there is none; the page may replace it meanwhile."""
    script = "return document.querySelector(arguments[0])?.textContent ?? ''"
    return str(browser.execute_script(script, selector)).strip()


def evaluate(browser: Chrome, script: str, *values: Any) -> Any:
    return browser.execute_script(script, *values)


def test_an_upload_is_watched_to_its_end_without_a_reload(browser: Chrome, site: Stack, clients: Clients) -> None:
    browser.get(site.urls["dashboard"])
    assert "No run yet" in text(browser, ".empty")
    evaluate(browser, "window.kept = 'the same page'")
    upload(site)
    eventually(lambda: text(browser, ".runs tbody th a"), "the row of the new run")
    assert evaluate(browser, "return window.kept") == "the same page"

    browser.find_element(By.CSS_SELECTOR, ".runs tbody th a").click()
    run_id = text(browser, "h1")
    evaluate(browser, "window.kept = 'the same page'; window.seen = []")
    states = eventually(lambda: _collect(browser, "SUCCEEDED"), "the end of the run", 200)
    assert evaluate(browser, "return window.kept") == "the same page"
    assert len(states) > 1, "the page showed the end alone"

    _check_curve(browser, clients, run_id)
    facts = text(browser, ".facts")
    assert "gs://kickoff-local-data/tiny/" in facts and "120 objects" in facts and "USD" in facts
    assert text(browser, "#news") == f"{run_id} is SUCCEEDED"


def _check_curve(browser: Chrome, clients: Clients, run_id: str) -> None:
    """What is drawn is what the trainer reported."""
    epochs = list_epochs(clients.ledger, run_id)
    label = browser.find_element(By.CSS_SELECTOR, "svg.chart").get_attribute("aria-label") or ""
    assert len(epochs) == 3
    assert f"training {epochs[-1].metrics['loss']:.4f}" in label
    points = browser.find_element(By.CSS_SELECTOR, "polyline.train").get_attribute("points") or ""
    assert len(points.split()) == 3


def _collect(browser: Chrome, last: str) -> list[str]:
    """Every state that the page showed so far, once it shows the last one."""
    script = """
        const state = document.querySelector('.headline .chip').textContent.trim().split(' ').pop();
        if (window.seen.at(-1) !== state) window.seen.push(state);
        return window.seen"""
    seen = evaluate(browser, script)
    assert "FAILED" not in seen, text(browser, "main")
    return list(seen) if seen[-1] == last else []


def test_a_run_is_cancelled_by_its_button(browser: Chrome, site: Stack, clients: Clients) -> None:
    run = add(clients, "to-cancel", next_attempt_at=None)
    browser.get(f"{site.urls['dashboard']}/runs/{run.run_id}")
    button = browser.find_element(By.ID, "cancel")
    button.send_keys(Keys.ENTER)
    eventually(lambda: "CANCELLED" in text(browser, ".headline"), "the end of the run", 20)
    assert "cancelled" in text(browser, ".history").lower()
    stored = clients.ledger.get_run(run.run_id)
    assert stored and stored.state is State.CANCELLED
    assert not browser.find_elements(By.ID, "cancel")


def test_a_running_job_is_cancelled_and_run_again_from_the_page(browser: Chrome, site: Stack, clients: Clients) -> None:
    pool = {
        "replica_count": 1,
        "machine_spec": {"machine_type": "n1-standard-4"},
        "container_spec": {"image_uri": TRAINER_IMAGE, "command": ["sh", "-c", "echo it sleeps; sleep 300"]},
    }
    publish(site, {"worker_pool_specs": [pool]})
    found = eventually(lambda: clients.ledger.find_runs(recipe="custom-job", states=[State.RUNNING]), "the job")
    browser.get(f"{site.urls['dashboard']}/runs/{found[0].run_id}")
    browser.find_element(By.ID, "cancel").click()
    eventually(lambda: "CANCELLED" in text(browser, ".headline"), "the end of the job", 60)
    browser.find_element(By.ID, "logs").click()
    assert "it sleeps" in text(browser, "#tails")
    browser.back()
    browser.find_element(By.NAME, "reason").send_keys("it was cancelled by mistake")
    browser.find_element(By.ID, "rerun").click()
    eventually(lambda: text(browser, "h1") == f"{found[0].run_id}-2", "the page of the second attempt", 20)
    assert "it was cancelled by mistake" in text(browser, ".history")
    browser.find_element(By.ID, "cancel").click()
    eventually(lambda: "CANCELLED" in text(browser, ".headline"), "the end of the second attempt", 60)


def publish(site: Stack, payload: object) -> None:
    import grpc
    from google.pubsub_v1 import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    with grpc.insecure_channel(site.environ["PUBSUB_EMULATOR_HOST"]) as channel:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        message = {"data": json.dumps(payload).encode()}
        client.publish(topic=f"projects/{PROJECT}/topics/training-requests", messages=[message])


def add(clients: Clients, name: str, **fields: Any) -> Run:
    """A run that no event asked for, created now."""
    return clients.ledger.create_run(make_run(name, **{"created": datetime.now(UTC), **fields}))


def test_focus_stays_while_the_list_refreshes(browser: Chrome, site: Stack, clients: Clients) -> None:
    run = add(clients, "focused", state=State.REJECTED, custom_job={})
    browser.get(site.urls["dashboard"])
    evaluate(browser, "document.querySelector(arguments[0]).focus()", f'a[href="/runs/{run.run_id}"]')
    newer = add(clients, "newer", state=State.REJECTED, custom_job={})
    eventually(lambda: text(browser, f'a[href="/runs/{newer.run_id}"]'), "the newer row", 20)
    assert evaluate(browser, "return document.activeElement.getAttribute('href')") == f"/runs/{run.run_id}"
    assert newer.run_id in text(browser, "#news")


def test_the_keyboard_reaches_everything_in_order(browser: Chrome, site: Stack) -> None:
    browser.get(site.urls["dashboard"])
    order = []
    for _ in range(7):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        order.append(evaluate(browser, "const a = document.activeElement; return a.name || a.className || a.tagName"))
    assert order == ["skip", "brand", "recipe", "state", "label", "text", "BUTTON"]
    outline = evaluate(browser, "return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "focus cannot be seen"


def test_filtering_by_keyboard_leads_to_a_url(browser: Chrome, site: Stack, clients: Clients) -> None:
    browser.get(site.urls["dashboard"])
    browser.find_element(By.NAME, "text").send_keys("no such run", Keys.ENTER)
    eventually(lambda: "text=no+such+run" in browser.current_url, "the filtered list", 20)
    assert "No run matches" in text(browser, ".empty")


def test_reading_needs_no_script(browser: Chrome, site: Stack, clients: Clients) -> None:
    run = _some_run(clients)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(f"{site.urls['dashboard']}/runs/{run.run_id}")
        assert browser.find_element(By.TAG_NAME, "h1").text == run.run_id
        assert "SUCCEEDED" in browser.find_element(By.CSS_SELECTOR, ".headline").text
        assert browser.find_element(By.CSS_SELECTOR, "svg.timeline").size["height"] > 5
        browser.find_element(By.CSS_SELECTOR, "details summary").click()
        assert "containerSpec" in browser.find_element(By.CSS_SELECTOR, "details pre").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def _some_run(clients: Clients) -> Run:
    """A run that has ended; the same one when it is there."""
    states = (State.QUEUED, State.SUBMITTING, State.SUBMITTED, State.RUNNING, State.SUCCEEDED)
    history = tuple(Change(state=state, time=datetime(2026, 1, 1, 12, n, tzinfo=UTC)) for n, state in enumerate(states))
    job = JobRecord(name="projects/kickoff-local/locations/us-central1/customJobs/1")
    fields: dict[str, Any] = {"state": State.SUCCEEDED, "history": history, "job": job, "finished_published": True}
    run = make_run("ended", created=history[0].time, **fields)
    return clients.ledger.get_run(run.run_id) or clients.ledger.create_run(run)


def test_hostile_text_stays_text(browser: Chrome, site: Stack, clients: Clients) -> None:
    run = add(
        clients,
        "hostile",
        state=State.REJECTED,
        custom_job={},
        labels={HOSTILE: HOSTILE},
        trigger=Trigger(kind="upload", source=f"gs://b/{HOSTILE}", by=HOSTILE),
        waiting_for=HOSTILE,
        notes=(HOSTILE,),
    )
    for path in ("/", f"/runs/{run.run_id}", "/?text=%3Cscript%3Ewindow.hacked%3D1%3C/script%3E"):
        browser.get(site.urls["dashboard"] + path)
        assert evaluate(browser, "return [window.hacked, document.images.length]") == [None, 0]
    browser.get(f"{site.urls['dashboard']}/runs/{run.run_id}")
    assert HOSTILE in text(browser, "main")


CONTRAST = """
const luminance = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const background = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const found = numbers(getComputedStyle(at).backgroundColor);
    if (found.length === 3 || found[3] === 1) return found;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('main *, header *')].filter((element) => {
  if (element.closest('svg, [aria-hidden], .hidden, details:not([open]) > :not(summary)')) return false;
  return [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
}).map((element) => {
  const [a, b] = [luminance(numbers(getComputedStyle(element).color)), luminance(background(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return [ratio, `${element.tagName}.${element.className}: ${ratio.toFixed(2)}`];
}).filter(([ratio]) => ratio < 4.5).map(([, words]) => words);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_dark_and_light(browser: Chrome, site: Stack, clients: Clients, scheme: str) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 to 1. https://www.w3.org/TR/WCAG22/#contrast-minimum"""
    emulate(browser, scheme)
    run = _some_run(clients)
    for path in ("/", f"/runs/{run.run_id}"):
        browser.get(site.urls["dashboard"] + path)
        assert evaluate(browser, CONTRAST) == []


def test_a_phone_shows_the_page_without_sideways_scrolling(browser: Chrome, site: Stack, clients: Clients) -> None:
    emulate(browser, width=390)
    run = _some_run(clients)
    for path in ("/", f"/runs/{run.run_id}"):
        browser.get(site.urls["dashboard"] + path)
        assert evaluate(browser, "return document.documentElement.scrollWidth") <= 390


def test_assistive_technology_finds_a_name_for_everything(browser: Chrome, site: Stack, clients: Clients) -> None:
    """Chromium's own accessibility tree."""
    run = _some_run(clients)
    for path in ("/", f"/runs/{run.run_id}"):
        browser.get(site.urls["dashboard"] + path)
        nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = [node["role"]["value"] for node in nodes if "role" in node and not node["ignored"]]
        assert {"main", "banner", "heading", "status"} <= set(roles)
        wanted = ("link", "button", "textbox", "combobox", "image", "region", "table")
        unnamed = [
            node["role"]["value"]
            for node in nodes
            if not node["ignored"] and node["role"]["value"] in wanted and not node.get("name", {}).get("value")
        ]
        assert [role for role in unnamed if role != "table" or path == "/"] == []
