"""``python3 pack.py ARCHIVE``: the functions' source as a ZIP file, as Cloud Functions takes it: main.py at its root.

The same source gives the same bytes, whatever the files' times are.
"""

import sys
import zipfile
from pathlib import Path

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def source_files(folder: Path) -> list[Path]:
    """Every file of the source but what Python leaves behind, sorted."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc" and path.name != ".gcloudignore"
    )


def pack(archive: Path, folder: Path = FUNCTIONS) -> None:
    """Write `folder` as a ZIP file. Raises FileNotFoundError where there is no main.py, before writing anything."""
    if not (folder / "main.py").is_file():
        raise FileNotFoundError(f"{folder} holds no main.py, so it is not the functions' source")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in source_files(folder):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
