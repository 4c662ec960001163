"""The dashboard's HTTP side: routes, headers, and the two things that it may change. The pages: page/."""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kickoff.clients import Clients
from kickoff.errors import KickoffError, PermanentError
from kickoff.page.filters import Filters
from kickoff.page.views import list_view, run_view
from kickoff.runs import Run, State
from kickoff.updating import Clock

if TYPE_CHECKING:
    import flask
    import jinja2

_PAGE = Path(__file__).with_name("page")
_ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_RUN = re.compile(r"/runs/([a-z0-9-]{1,80})(\.json|/logs|/cancel|/rerun)?")
_COOKIE = "kickoff_token"
_READS = ("GET", "HEAD")
_HTML = "text/html; charset=utf-8"
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}

Answer = tuple[str | bytes, int, dict[str, str]]


def respond(request: "flask.Request", clients: Clients, now: Clock) -> Answer:
    """Answer one request. Errors become pages too."""
    page = _Page(request, clients, now)
    try:
        body, status, headers = page.answer()
    except PermanentError as error:
        body, status, headers = page.message("That cannot be done", str(error), 400)
    except KickoffError as error:
        body, status, headers = page.message("Not now", f"{error}. Try again in a moment.", 503)
    return body, status, {**_HEADERS, **headers}


@dataclass(frozen=True)
class _Page:
    request: "flask.Request"
    clients: Clients
    now: Clock

    def answer(self) -> Answer:
        path = self.request.path
        if path == "/healthz":
            return "ok", 200, {"Content-Type": "text/plain"}
        if path.startswith("/assets/"):
            return self.asset(path.removeprefix("/assets/"))
        if path == "/":
            return self.index() if self.request.method in _READS else self.not_here(_READS)
        match = _RUN.fullmatch(path)
        run = self.clients.ledger.get_run(match[1]) if match else None
        if match is None or run is None:
            return self.message("Not found", f"There is nothing at {path}.", 404)
        return self.run(run, match[2] or "")

    def run(self, run: Run, part: str) -> Answer:
        writes = part in ("/cancel", "/rerun")
        allowed = ("POST",) if writes else _READS
        if self.request.method not in allowed:
            return self.not_here(allowed)
        if part == ".json":
            return self.tagged(run.model_dump_json(exclude={"version"}, indent=2).encode(), "application/json")
        if part == "/logs":
            return self.html("logs.html", run=run, tails=self.tails(run))
        if writes:
            return self.change(run, part)
        actions = self.clients.settings.page_actions
        token = self.request.cookies.get(_COOKIE, "") or secrets.token_urlsafe(24)
        body, status, headers = self.html(
            "run.html", view=run_view(self.clients.ledger, run, self.now()), actions=actions, token=token
        )
        if actions and _COOKIE not in self.request.cookies:
            # Cloud Run ends TLS before us: https://cloud.google.com/run/docs/container-contract#tls
            https = "https" in (self.request.scheme, self.request.headers.get("X-Forwarded-Proto"))
            secure = "; Secure" if https else ""
            headers["Set-Cookie"] = f"{_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return body, status, headers

    def index(self) -> Answer:
        filters = Filters.from_query(self.request.args)
        view = list_view(self.clients.ledger, filters, self.now())
        recipes = sorted({recipe.name for recipe in self.clients.recipes} | {row.run.recipe for row in view.rows})
        return self.html("list.html", view=view, recipes=recipes, states=list(State))

    def tails(self, run: Run) -> list[tuple[str, list[str], str]]:
        """(replica, its last lines, its exits), those that failed first."""
        from kickoff.logs import read_tails

        tails = dict(read_tails(self.clients.settings.logging_endpoint, run))
        exits: dict[str, list[str]] = {}
        for exit_ in run.replica_exits:
            exits.setdefault(exit_.replica, []).append(str(exit_.status))
        order = sorted(tails, key=lambda replica: (replica not in exits, replica))
        return [(replica, tails[replica], ", ".join(exits.get(replica, []))) for replica in order]

    def change(self, run: Run, part: str) -> Answer:
        """Cancel or rerun: a POST from our own page, with its token, where the settings allow it."""
        if not self.clients.settings.page_actions:
            return self.message("Not allowed", "This page only reads. Use the kickoff command.", 403)
        if not is_ours(self.request.headers, self.request.host, self.request.cookies, self.request.form):
            return self.message("Not allowed", "The request does not come from this page. Go back and try again.", 403)
        by = self.request.headers.get("X-Goog-Authenticated-User-Email", "the page").rpartition(":")[2]
        if part == "/cancel":
            from kickoff.steering import cancel

            cancel(self.clients.ledger, self.clients.vertex, run.run_id, now=self.now, by=by)
            return "", 303, {"Location": f"/runs/{run.run_id}"}
        from kickoff.start import try_to_submit
        from kickoff.steering import rerun

        # The same form sent twice names the same attempt: a double click makes one run.
        form = self.request.form.get("form", "")[:20]
        token = hashlib.sha256(f"{run.run_id} {form}".encode()).hexdigest()[:16]
        reason = self.request.form.get("reason", "")[:200]
        made = rerun(self.clients.ledger, run.run_id, reason, f"page-{token}", now=self.now, by=by)
        try_to_submit(made.run, self.clients, self.now)
        return "", 303, {"Location": f"/runs/{made.run.run_id}"}

    def asset(self, name: str) -> Answer:
        if name not in _ASSETS:
            return self.message("Not found", f"There is nothing at {self.request.path}.", 404)
        return self.tagged((_PAGE / "assets" / name).read_bytes(), _ASSETS[name])

    def html(self, template: str, **values: Any) -> Answer:
        return self.tagged(self.render(template, **values), _HTML)

    def message(self, heading: str, text: str, status: int) -> Answer:
        return self.render("message.html", heading=heading, text=text, back="/"), status, {"Content-Type": _HTML}

    def render(self, template: str, **values: Any) -> bytes:
        text: str = _templates().get_template(template).render(settings=self.clients.settings, **values)
        return text.encode()

    def not_here(self, allowed: tuple[str, ...]) -> Answer:
        body, status, headers = self.message("Not here", f"{self.request.method} is not a way to ask for that.", 405)
        return body, status, {**headers, "Allow": ", ".join(allowed)}

    def tagged(self, body: bytes, content_type: str) -> Answer:
        """With an ETag: a page that did not change is not sent again."""
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        if self.request.headers.get("If-None-Match") == tag:
            return b"", 304, {"ETag": tag}
        return body, 200, {"Content-Type": content_type, "ETag": tag}


def is_ours(headers: Mapping[str, str], host: str, cookies: Mapping[str, str], form: Mapping[str, str]) -> bool:
    """Whether a POST comes from our own page: same origin, and the token of the cookie in the form.

    https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html
    """
    site = headers.get("Sec-Fetch-Site")  # what the browser saw: behind a proxy the host may have another name
    if site is None:
        site = "same-origin" if headers.get("Origin", f"//{host}").partition("//")[2] == host else "cross-site"
    if site != "same-origin":
        return False
    token = cookies.get(_COOKIE, "")
    return bool(token) and hmac.compare_digest(token.encode(), form.get("token", "").encode())


@cache
def _templates() -> "jinja2.Environment":
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(span=format_span, usd=format_usd, number=format_number, pretty=format_json)
    return environment


def format_span(seconds: float | None) -> str:
    """``42 s``, ``3 min 5 s``, ``2 h 4 min``."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_usd(value: float | None) -> str:
    return "" if value is None else f"{value:.4f} USD"


def format_number(value: float | None) -> str:
    """Four decimals, or three digits where those would say nothing."""
    if value is None:
        return ""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"


def format_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
