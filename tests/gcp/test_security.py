"""docs/security.md says exactly what the Terraform grants."""

import os
from typing import Any

import pytest

from deploy.gcp.security import render_grants, replace_table
from tests.gcp.checkout import ROOT
from tests.gcp.terraform import tool

DOCUMENT = ROOT / "docs" / "security.md"


@pytest.mark.timeout(700)
@pytest.mark.skipif(not tool(), reason="terraform-check is not here: docs/security.md was not compared with the HCL")
def test_the_table_is_the_hcls(plan: dict[str, Any]) -> None:
    """``KICKOFF_WRITE_DOCS=1`` writes the table instead."""
    table = render_grants(plan["planned_values"]["outputs"]["grants"]["value"])
    wanted = replace_table(DOCUMENT.read_text(), table)
    if os.environ.get("KICKOFF_WRITE_DOCS"):
        DOCUMENT.write_text(wanted)
    assert DOCUMENT.read_text() == wanted, "run this test with KICKOFF_WRITE_DOCS=1"


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold"):
        replace_table("no table here", "")
