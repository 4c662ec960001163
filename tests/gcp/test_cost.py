"""docs/cost.md holds the table that deploy/gcp/cost.py makes, and the module's numbers are those that are deployed."""

import os
import re

from deploy.gcp.cost import BEGIN, END, items, render_table
from tests.gcp.checkout import ROOT

DOCUMENT = ROOT / "docs" / "cost.md"


def test_the_table_is_what_is_computed() -> None:
    """``KICKOFF_WRITE_DOCS=1`` writes the table instead."""
    text = DOCUMENT.read_text()
    wanted = re.sub(f"{BEGIN}.*{END}", f"{BEGIN}\n\n{render_table()}\n{END}", text, flags=re.DOTALL)
    assert wanted.count(BEGIN) == 1
    if os.environ.get("KICKOFF_WRITE_DOCS"):
        DOCUMENT.write_text(wanted)
    assert DOCUMENT.read_text() == wanted, "run this test with KICKOFF_WRITE_DOCS=1"


def test_the_memory_and_the_schedule_are_the_deployed_ones() -> None:
    terraform = ROOT / "deploy" / "gcp"
    assert set(re.findall(r'available_memory\s*=\s*"(\w+)"', (terraform / "functions.tf").read_text())) == {"512Mi"}
    assert '"* * * * *"' in (terraform / "scheduler.tf").read_text()


def test_free_units_are_never_paid_back() -> None:
    for item in items():
        assert item.cost(item.idle, free=True) >= 0
        assert item.cost(item.busy, free=False) >= item.cost(item.busy, free=True)
