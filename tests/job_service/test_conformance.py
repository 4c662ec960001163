"""docs/vertex-emulator.md holds the table that the client tests make.

``python -m tests.job_service.test_conformance`` writes it.
"""

from pathlib import Path

from tests.job_service import test_gcloud, test_sdk
from tests.job_service.conformance import BEGIN, END, ROWS, render

PAGE = Path(__file__).parents[2] / "docs" / "vertex-emulator.md"


def test_the_page_holds_the_table_of_the_client_tests() -> None:
    assert test_gcloud and test_sdk
    assert len(ROWS) > 15
    held = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert held.strip() == render().strip(), f"write it anew: python -m {__spec__.name}"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{render()}\n{END}{rest.partition(END)[2]}")
