"""Plans of deploy/gcp without a network: terraform-check's stand-in for the google provider, and the plan as JSON.

terraform-check is a tool of the workplace, not part of this repository: ``TERRAFORM_CHECK`` names it, else it is
looked for beside the checkout. It prints a plan for people; a `terraform` put before the real one on PATH keeps the
plan's JSON as well.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.gcp.checkout import ROOT

MODULE = ROOT / "deploy" / "gcp"
_BESIDE = ROOT.parent / "shared" / "tools" / "terraform-check" / "terraform-check"
_KEEPER = """#!/bin/sh
real={real}
if [ "$1" = plan ]; then
  shift
  "$real" plan -out=kept.plan "$@" && "$real" show -json kept.plan >"$KEPT_PLAN"
else
  exec "$real" "$@"
fi
"""


def tool() -> str:
    """The path of terraform-check, or an empty string where it or Terraform is missing."""
    found = Path(os.environ.get("TERRAFORM_CHECK", _BESIDE))
    return str(found) if found.is_file() and shutil.which("terraform") else ""


def check(folder: Path, module: Path = MODULE, plan: bool = True, **variables: Any) -> tuple[str, dict[str, Any]]:
    """What terraform-check prints, and the plan's JSON. Raises CalledProcessError where the module is wrong."""
    shim, kept = folder / "terraform", folder / "plan.json"
    shim.write_text(_KEEPER.format(real=shutil.which("terraform")))
    shim.chmod(0o755)
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KEPT_PLAN": str(kept), "PLAN": str(int(plan))}
    for name, value in variables.items():
        environ[f"TF_VAR_{name}"] = value if isinstance(value, str) else json.dumps(value)
    done = subprocess.run([tool(), str(module)], env=environ, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stdout + done.stderr)
    return done.stdout, json.loads(kept.read_text()) if plan else {}


def resources(plan: dict[str, Any], type: str) -> dict[str, dict[str, Any]]:
    """Planned values of every resource of a type, by address without the type."""
    found = plan["planned_values"]["root_module"]["resources"]
    return {each["address"].removeprefix(f"{type}."): each["values"] for each in found if each["type"] == type}
