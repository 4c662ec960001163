"""The page over a real ledger, through Flask as the functions framework calls it."""

import math
import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import flask
import pytest
from flask.testing import FlaskClient
from kickoff.clients import Clients
from kickoff.dashboard import format_number, format_span, is_ours, respond
from kickoff.errors import LedgerUnavailable
from kickoff.ledger.protocol import Ledger
from kickoff.page.filters import PAGE, SCAN
from kickoff.progress import EPOCHS
from kickoff.runs import Change, DatasetRecord, FaultRecord, JobRecord, ReplicaExit, Run, State, Trigger
from kickoff.settings import Settings

from deploy.local.job_service.server import JobServiceServer
from tests.kickoff.making import NOW, make_custom_job, make_run

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&"
LIMIT = 60_000
"""Bytes of one page."""


class Site:
    """One deployment's page, with what it reads."""

    def __init__(self, folder: Path, **environ: str) -> None:
        values = {"KICKOFF_PROJECT": "kickoff-local", "KICKOFF_LEDGER": f"sqlite://{folder}/runs.db", **environ}
        self.clients = Clients(Settings.from_environ(values))
        self.ledger: Ledger = self.clients.ledger
        app = flask.Flask(__name__, static_folder=None)

        def answer(path: str) -> Any:
            return respond(flask.request, self.clients, lambda: NOW + timedelta(minutes=5))

        methods = ["GET", "HEAD", "POST", "PUT", "DELETE"]
        app.add_url_rule("/", "root", answer, defaults={"path": ""}, methods=methods)
        app.add_url_rule("/<path:path>", "path", answer, methods=methods)
        self.client: FlaskClient = app.test_client()

    def text(self, path: str, status: int = 200) -> str:
        found = self.client.get(path)
        assert found.status_code == status, found.text
        return str(found.text)

    def add(self, name: str = "m-1", **fields: Any) -> Run:
        return self.ledger.create_run(make_run(name, **fields))

    def shown(self, path: str) -> list[str]:
        """Run ids in the list, in order."""
        return re.findall(r'href="/runs/([a-z0-9-]+)"', self.text(path))

    def epoch(self, run: Run, epoch: int, epochs: int, **metrics: float | None) -> None:
        data = {"epoch": epoch, "epochs": epochs, "metrics": metrics, "images_per_second": 10.0, "time": None}
        self.ledger.create_document(EPOCHS, f"{run.run_id}/{epoch:06d}", data)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.ledger.close()


@pytest.fixture
def acting(tmp_path: Path, vertex_emulator: JobServiceServer) -> Iterator[Site]:
    """A page that may cancel and rerun, before a real JobService."""
    url = vertex_emulator.url
    environ = {"KICKOFF_VERTEX_ENDPOINT": url, "KICKOFF_LOGGING_ENDPOINT": url}
    site = Site(tmp_path, KICKOFF_PAGE_ACTIONS="allow", **environ)
    yield site
    site.ledger.close()


def job(**fields: Any) -> JobRecord:
    return JobRecord(name="projects/kickoff-local/locations/us-central1/customJobs/4711", **fields)


class Tags(HTMLParser):
    """Every start tag of a page with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_an_empty_list_says_what_to_do(site: Site) -> None:
    assert "Upload a dataset" in site.text("/")
    assert "No run matches" in site.text("/?recipe=flowers")


def test_runs_stand_newest_first_with_state_in_words_and_shape(site: Site) -> None:
    old = site.add("old", state=State.SUCCEEDED, metrics={"val_accuracy": 0.9375})
    new = site.add("new", created=NOW + timedelta(seconds=1))
    assert site.shown("/") == [new.run_id, old.run_id]
    text = site.text("/")
    assert "QUEUED" in text and "SUCCEEDED" in text and "✓" in text and "0.9375" in text


def test_filters_by_recipe_state_label_and_text_are_in_the_url(site: Site) -> None:
    mine = site.add("a", recipe="digits", state=State.FAILED, labels={"team": "vision"}, job=job())
    other = site.add("b", labels={"team": "audio"}, trigger=Trigger(kind="upload", source="gs://b/Äpfel/1.jpg#7"))
    for query in ("recipe=digits", "state=FAILED", "label=team%3Dvision", "text=digits-", f"text={mine.run_id}"):
        assert site.shown(f"/?{query}") == [mine.run_id], query
    for query in ("text=4711", "text=projects/p/locations/r/customJobs/4711"):
        assert site.shown(f"/?{query}") == [mine.run_id], query
    assert site.shown("/?text=%C3%84PFEL") == [other.run_id]
    assert len(site.shown("/?label=team")) == 2
    assert site.shown(f"/?text={mine.run_id}&state=RUNNING") == []
    assert len(site.shown("/?state=nonsense&after=../../x")) == 2


def test_the_form_shows_the_filter_it_was_given(site: Site) -> None:
    text = site.text("/?state=FAILED&text=%22%3E%3Cb%3E")
    assert "<option selected>FAILED</option>" in text
    assert '"><b>' not in text


def test_pages_cover_every_run_once(site: Site) -> None:
    made = [site.add(str(n), created=NOW + timedelta(seconds=n)).run_id for n in range(2 * PAGE + 5)]
    path, seen = "/", []
    while path:
        text = site.text(path)
        seen += re.findall(r'href="/runs/([a-z0-9-]+)"', text)
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert seen == made[::-1]
    assert len(site.text("/").encode()) < LIMIT
    assert "data-live" not in site.text(f"/?after={made[60]}")


def test_a_search_is_bounded_and_goes_on_where_it_stopped(site: Site) -> None:
    # One transaction: as many single ones would take the test's time.
    site.add("old", recipe="needle", created=NOW - timedelta(days=1))
    template = site.add("hay")
    fill(site, template, SCAN)
    text = site.text("/?text=needle")
    assert f"among the {SCAN} looked at" in text
    assert "data-live" not in text
    following = re.search(r'rel="next" href="([^"]+)"', text)
    assert following
    assert [found.partition("-")[0] for found in site.shown(following[1].replace("&amp;", "&"))] == ["needle"]


def fill(site: Site, template: Run, count: int) -> None:
    import sqlite3

    path = site.clients.settings.ledger.removeprefix("sqlite://")
    with sqlite3.connect(path) as db:
        row = db.execute("SELECT * FROM runs WHERE run_id = ?", (template.run_id,)).fetchone()
        names = [column[1] for column in db.execute("PRAGMA table_info(runs)")]
        for n in range(count):
            run_id = f"{template.run_id}-{n}"
            values = dict(zip(names, row, strict=True))
            values |= {"run_id": run_id, "record": values["record"].replace(template.run_id, run_id)}
            db.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(names))})", list(values.values()))


def test_held_datasets_and_queued_runs_say_what_they_wait_for(site: Site) -> None:
    hold = {"recipe": "flowers", "root": "gs://b/<i>/", "nonce": "1", "waiting_for": "2 minutes without a new file"}
    times = {"since": NOW.isoformat(), "next_look": NOW.isoformat()}
    for n in range(25):
        site.ledger.create_document("holds", f"flowers-{n}", {**hold, **times})
    site.add(waiting_for="a free slot: flowers has 1 of 1 active")
    text = site.text("/")
    assert "waits for 2 minutes without a new file" in text and "gs://b/&lt;i&gt;/" in text and "and 5 more" in text
    assert "waits for a free slot: flowers has 1 of 1 active" in text
    assert "Waiting for data" not in site.text("/?recipe=digits")


def test_a_refused_request_shows_every_fault(site: Site) -> None:
    faults = tuple(FaultRecord(path=f"f{n}", message=f"f{n} is {HOSTILE}") for n in range(60))
    run = site.add(state=State.REJECTED, faults=faults, custom_job={})
    text = site.text(f"/runs/{run.run_id}")
    assert "Why it was refused" in text and "f49 is" in text and "and 10 more" in text
    assert "(and 59 more)" in site.text("/?state=REJECTED")


def test_everything_that_others_wrote_is_escaped(site: Site) -> None:
    run = site.add(
        state=State.FAILED,
        labels={HOSTILE: HOSTILE},
        trigger=Trigger(kind="upload", source=HOSTILE, by=HOSTILE),
        dataset=DatasetRecord(uri=f"gs://b/{HOSTILE}", digest=HOSTILE, objects=1, bytes=2),
        model_uri=f"gs://m/{HOSTILE}",
        job=job(error=HOSTILE),
        notes=(HOSTILE,),
        warnings=(HOSTILE,),
        waiting_for=HOSTILE,
        duplicate_jobs=(HOSTILE,),
        history=(Change(state=State.FAILED, time=NOW, note=HOSTILE),),
        custom_job={"jobSpec": {"workerPoolSpecs": [{"replicaCount": 1, "machineSpec": {"machineType": HOSTILE}}]}},
        replica_exits=(ReplicaExit(replica=HOSTILE, status=1),),
    )
    site.epoch(run, 1, 2, **{HOSTILE: 0.5})
    for path in ("/", f"/runs/{run.run_id}", f"/?text={HOSTILE}", f"/{HOSTILE}"):
        tags = Tags(site.client.get(path, query_string=None).text).found
        assert not [tag for tag, _ in tags if tag == "img"], path
        assert [attrs.get("src") for tag, attrs in tags if tag == "script"] == ["/assets/page.js"], path
        assert not [name for _, attrs in tags for name in attrs if name.startswith("on") or name == "style"], path


def test_no_link_leads_anywhere_but_here_and_https(site: Site) -> None:
    run = site.add(state=State.SUCCEEDED, job=job(), model_uri="javascript:alert(1)", rerun_of="digits-1")
    for tag, attrs in Tags(site.text(f"/runs/{run.run_id}")).found:
        for name in ("href", "src", "action"):
            if value := attrs.get(name):
                assert value.startswith(("/", "#", "https://console.cloud.google.com/")), (tag, value)


@pytest.mark.parametrize("path", ["/", "/runs/none", "/assets/page.css", "/assets/page.js", "/assets/icon.svg"])
def test_every_answer_carries_the_headers_that_keep_browsers_strict(site: Site, path: str) -> None:
    headers = site.client.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert (
        policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'" and policy["base-uri"] == "'none'"
    )
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Type"]


def test_pages_carry_no_inline_script_or_style(site: Site) -> None:
    run = site.add(state=State.RUNNING)
    for text in (site.text("/"), site.text(f"/runs/{run.run_id}")):
        assert not re.search(r"<style|style=|<script>|javascript:", text)
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//(?!console\.cloud)", text)


def test_a_page_that_did_not_change_is_not_sent_again(site: Site) -> None:
    run = site.add(state=State.SUCCEEDED)
    for path in ("/", f"/runs/{run.run_id}", f"/runs/{run.run_id}.json", "/assets/page.css"):
        first = site.client.get(path)
        again = site.client.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b""), path
    site.add("another")
    assert site.client.get("/", headers={"If-None-Match": first.headers["ETag"]}).status_code == 200


def test_what_is_not_there_is_404_and_wrong_methods_405(site: Site) -> None:
    run = site.add()
    for path in (
        "/runs/none",
        "/runs/",
        "/runs/../x",
        "/assets/../dashboard.py",
        "/assets/none",
        f"/runs/{run.run_id}/x",
    ):
        assert site.client.get(path).status_code == 404, path
    assert site.client.post("/").status_code == 405
    assert site.client.delete(f"/runs/{run.run_id}").status_code == 405
    refused = site.client.get(f"/runs/{run.run_id}/cancel")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    assert site.client.head("/").status_code == 200


def test_the_record_as_json_is_the_record(site: Site) -> None:
    run = site.add()
    answer = site.client.get(f"/runs/{run.run_id}.json")
    assert answer.content_type == "application/json"
    assert Run.model_validate(answer.json) == run.model_copy(update={"version": ""})


def test_health_needs_no_ledger(site: Site) -> None:
    site.clients.__dict__["ledger"] = None
    assert site.text("/healthz") == "ok"


def test_a_ledger_that_does_not_answer_is_said_and_503(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> list[Run]:
        raise LedgerUnavailable("the ledger did not answer: <gone>")

    monkeypatch.setattr(site.ledger, "find_runs", broken)
    text = site.text("/", status=503)
    assert "&lt;gone&gt;" in text and "Try again" in text


# One run.


def test_a_run_shows_its_life_and_facts(site: Site) -> None:
    history = tuple(
        Change(state=state, time=NOW + timedelta(seconds=10 * n))
        for n, state in enumerate((State.QUEUED, State.SUBMITTING, State.SUBMITTED, State.RUNNING, State.SUCCEEDED))
    )
    run = site.add(
        state=State.SUCCEEDED,
        history=history,
        job=job(),
        dataset=DatasetRecord(uri="gs://b/flowers/", digest="abc", objects=3, bytes=99),
        cost_usd=0.0123,
        worst_case_usd=1.5,
        model_uri="gs://m/flowers/model",
        labels={"team": "vision"},
    )
    text = site.text(f"/runs/{run.run_id}")
    for part in ("3 objects, 99 bytes", "0.0123 USD", "1.50 USD", "gs://m/flowers/model", "team=vision", "40 s"):
        assert part in text, part
    for phase in ("queued 10 s", "provisioning 20 s", "running 10 s"):
        assert phase in text
    assert "https://console.cloud.google.com/ai/platform/locations/us-central1/training/4711" in text
    assert "data-live" not in text


def test_curves_are_svg_with_their_last_values_in_words(site: Site) -> None:
    run = site.add(state=State.RUNNING)
    for epoch, loss in enumerate((2.0, 1.0, 0.5), 1):
        site.epoch(run, epoch, 4, loss=loss, val_loss=loss * 2, accuracy=1 - loss / 4, auc=0.5)
    text = site.text(f"/runs/{run.run_id}")
    assert re.search(r'aria-label="Loss by epoch: training 0\.5000 validation 1\.0000"', text)
    assert text.index("Loss by epoch") < text.index("Accuracy by epoch") < text.index("Auc by epoch")
    assert "3 of 4 epochs as a table" in text
    assert f'data-news="{run.run_id} is RUNNING, epoch 3 of 4"' in text
    xs = [float(point.split(",")[0]) for point in re.findall(r'points="([^"]+)"', text)[0].split()]
    assert xs == sorted(xs) and len(xs) == 3


def test_a_run_whose_epochs_have_expired_says_so_and_keeps_its_figures(site: Site) -> None:
    old = site.add(state=State.SUCCEEDED, created=NOW - timedelta(days=500), metrics={"val_accuracy": 0.875})
    text = site.text(f"/runs/{old.run_id}")
    assert "Epochs are kept for 400 days, and this run is older" in text and "0.875" in text
    silent = site.add("silent", state=State.SUCCEEDED, metrics={"val_accuracy": 0.5})
    assert "Epochs are kept" not in site.text(f"/runs/{silent.run_id}")


def test_an_epoch_that_was_not_finite_is_a_gap_and_said(site: Site) -> None:
    run = site.add(state=State.RUNNING)
    for epoch, loss in enumerate((2.0, 1.5, None, -0.5), 1):
        site.epoch(run, epoch, 4, loss=loss)
    text = site.text(f"/runs/{run.run_id}")
    assert len(re.findall("<polyline", text)) == 2
    assert "not finite" in text
    ys = [float(y) for points in re.findall(r'points="([^"]+)"', text) for y in re.findall(r",([\d.-]+)", points)]
    assert all(0 <= y <= 200 for y in ys)
    nothing = site.add("all-nan", state=State.RUNNING)
    site.epoch(nothing, 1, 1, loss=None)
    assert "<polyline" not in site.text(f"/runs/{nothing.run_id}")


def test_a_thousand_epochs_and_a_hundred_replicas_stay_a_small_page(site: Site) -> None:
    work = make_custom_job("r")
    work["jobSpec"]["workerPoolSpecs"].append({**work["jobSpec"]["workerPoolSpecs"][0], "replicaCount": 99})
    exits = (ReplicaExit(replica="workerpool1-98", status=137),)
    run = site.add(state=State.FAILED, custom_job=work, job=job(error="it failed"), replica_exits=exits)
    for epoch in range(1, 1001):
        site.epoch(run, epoch, 1000, loss=math.exp(-epoch / 100), val_loss=0.5, accuracy=0.5, val_accuracy=0.25)
    text = site.text(f"/runs/{run.run_id}")
    assert len(text.encode()) < LIMIT
    assert "workerpool1-98" in text and "exit 137" in text and "and 35 more replicas" in text
    assert "epochs as a table, the last 100" in text
    assert "data-inline" in text


def test_a_huge_job_is_cut_and_says_so(site: Site) -> None:
    run = site.add(custom_job={"jobSpec": {"x": "y" * 500_000}})
    text = site.text(f"/runs/{run.run_id}")
    assert len(text.encode()) < LIMIT and "the record as JSON has it all" in text


def test_pages_read_without_a_script_and_by_screen_readers(site: Site) -> None:
    run = site.add(state=State.RUNNING)
    site.epoch(run, 1, 2, loss=1.0)
    for text in (site.text("/"), site.text(f"/runs/{run.run_id}"), site.text("/runs/none", 404)):
        tags = Tags(text).found
        names = [tag for tag, _ in tags]
        assert names.count("h1") == names.count("main") == 1
        assert dict(tags[0][1])["lang"] == "en"
        assert all("scope" in attrs for tag, attrs in tags if tag == "th")
        labelled = [attrs["aria-labelledby"] for _, attrs in tags if "aria-labelledby" in attrs]
        assert set(labelled) <= {attrs.get("id") for _, attrs in tags}
        ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
        assert len(ids) == len(set(ids))
        assert [attrs.get("id") for _, attrs in tags if attrs.get("role") == "status"] == ["news"]


# What it may change.


def token(site: Site, run: Run) -> str:
    found = re.search(r'name="token" value="([^"]+)"', site.text(f"/runs/{run.run_id}"))
    assert found
    return found[1]


def test_without_the_setting_the_page_only_reads(site: Site) -> None:
    run = site.add()
    answer = site.client.get(f"/runs/{run.run_id}")
    assert "<form method" not in answer.text and "Set-Cookie" not in answer.headers
    assert site.client.post(f"/runs/{run.run_id}/cancel", data={"token": "x"}).status_code == 403
    assert current(site, run) == run


def current(site: Site, run: Run) -> Run | None:
    return site.ledger.get_run(run.run_id)


def test_cancel_from_the_page_itself(acting: Site) -> None:
    run = acting.add()
    value = token(acting, run)
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    answer = acting.client.post(f"/runs/{run.run_id}/cancel", data={"token": value}, headers=headers)
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/runs/{run.run_id}")
    assert "CANCELLED" in acting.text(f"/runs/{run.run_id}")


def test_the_cookie_is_for_this_site_alone(acting: Site) -> None:
    run = acting.add()
    cookie = acting.client.get(f"/runs/{run.run_id}", headers={"X-Forwarded-Proto": "https"}).headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Secure"} <= set(cookie.split("; "))


@pytest.mark.parametrize(
    ("headers", "form"),
    [
        ({}, {}),
        ({}, {"token": "wrong"}),
        ({"Origin": "https://evil.example"}, None),
        ({"Origin": "null"}, None),
        ({"Sec-Fetch-Site": "cross-site"}, None),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"}, None),
    ],
)
def test_a_post_from_elsewhere_changes_nothing(
    acting: Site, headers: dict[str, str], form: dict[str, str] | None
) -> None:
    run = acting.add()
    data = {"token": token(acting, run)} if form is None else form
    answer = acting.client.post(f"/runs/{run.run_id}/cancel", data=data, headers=headers)
    assert answer.status_code == 403
    assert current(acting, run) == run


def test_a_proxy_that_renames_the_host_is_no_other_site() -> None:
    form, cookies = {"token": "t"}, {"kickoff_token": "t"}
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8080"}
    assert is_ours(headers, "kickoff.run.app", cookies, form)
    assert not is_ours(headers, "kickoff.run.app", {}, {"token": ""})


def test_run_it_again_makes_one_attempt_however_often_it_is_clicked(acting: Site) -> None:
    run = acting.add(state=State.FAILED)
    form = {"token": token(acting, run), "reason": "flaky", "form": "0"}
    place = [acting.client.post(f"/runs/{run.run_id}/rerun", data=form).headers["Location"] for _ in range(2)]
    again = acting.ledger.get_run(place[0].removeprefix("/runs/"))
    assert again and again.rerun_of == run.run_id and again.state is State.SUBMITTED
    assert again.run_id in acting.text(f"/runs/{run.run_id}")
    assert place[0] == place[1]


def test_a_rerun_without_a_reason_says_so(acting: Site) -> None:
    run = acting.add(state=State.FAILED)
    answer = acting.client.post(f"/runs/{run.run_id}/rerun", data={"token": token(acting, run), "reason": " "})
    assert answer.status_code == 400 and "reason is empty" in answer.text


def test_last_lines_show_the_replica_that_failed_first(acting: Site) -> None:
    """Over the real entries.list of the JobService emulator."""
    run = acting.add(state=State.FAILED, custom_job=make_custom_job("r", image="broken"))
    form = {"token": token(acting, run), "reason": "see its lines"}
    place = acting.client.post(f"/runs/{run.run_id}/rerun", data=form).headers["Location"]
    ran = acting.ledger.get_run(place.removeprefix("/runs/"))
    assert ran and ran.job
    acting.ledger.replace_run(ran.model_copy(update={"replica_exits": (ReplicaExit(replica="service", status=1),)}))
    text = acting.text(f"{place}/logs")
    assert "exit 1" in text and re.search(r"<pre>.+</pre>", text, re.DOTALL)


def test_lines_that_cannot_be_had_are_no_error(tmp_path: Path) -> None:
    site = Site(tmp_path, KICKOFF_LOGGING_ENDPOINT="http://127.0.0.1:9")
    run = site.add(state=State.FAILED, job=job())
    assert "Cloud Logging did not answer" in site.text(f"/runs/{run.run_id}/logs")


def test_numbers_and_spans_for_people() -> None:
    assert [format_span(value) for value in (None, 0.4, 59, 61, 7260)] == ["", "0 s", "59 s", "1 min 1 s", "2 h 1 min"]
    assert [format_number(value) for value in (None, 0, 0.12345, 1e-7, 1e300)] == [
        "",
        "0.0000",
        "0.1235",
        "1e-07",
        "1e+300",
    ]
