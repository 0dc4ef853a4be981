"""The site of the documentation: it builds without a warning, and its notebooks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redist.launch.launcher import environment
from tests.docs.documents import ROOT
from tests.docs.test_docs import without_times

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDS = "needs the extra docs: make docs installs it"
pytestmark = pytest.mark.slow("builds the site, starts kernels of notebooks")


def test_site_builds_strictly_and_asks_no_other_server(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason=NEEDS)
    pytest.importorskip("mkdocstrings", reason=NEEDS)
    pytest.importorskip("mkdocs_jupyter", reason=NEEDS)
    pytest.importorskip("latex2mathml", reason=NEEDS)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() in pages
    assert (tmp_path / "reference" / "plan.schema.json").is_file()
    api = (tmp_path / "reference" / "api.html").read_text(encoding="utf-8")
    assert ":class:" not in api and 'class="gp"' in api
    theory = (tmp_path / "explanation" / "theory.html").read_text(encoding="utf-8")
    assert theory.count("<math") > 50 and "arithmatex" not in theory
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"(https?:[^\"]+)", home)
    loaded += re.findall(r"<link rel=\"(?:stylesheet|preconnect)\" href=\"(https?:[^\"]+)", home)
    assert not loaded
    # Opened as a file, a page finds the index and the frame that searches it beside itself.
    assert (tmp_path / "search" / "search_index.js").is_file()
    assert 'src="javascripts/iframe-worker.js"' in home
    assert (tmp_path / "javascripts" / "iframe-worker.js").is_file()
    assert "here you see only names" not in api


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run_and_print_what_they_show(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat", reason=NEEDS)
    nbclient = pytest.importorskip("nbclient", reason=NEEDS)
    pytest.importorskip("ipykernel", reason=NEEDS)
    env = environment()
    monkeypatch.setenv("PYTHONPATH", env["PYTHONPATH"])
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}")
    shown = nbformat.read(path, as_version=4)
    assert path.stat().st_size < 300_000
    ran = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        ran, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    for before, after in zip(shown.cells, ran.cells, strict=True):
        if before.cell_type == "code":
            assert _outputs(before) == _outputs(after), before.source


def _outputs(cell: Any) -> list[tuple[str, str]]:
    """Kind and text of a cell's outputs: streams joined, times left out, of commands the kind alone."""
    found: list[tuple[str, str]] = []
    for output in cell.outputs:
        kind = output.get("name", output.output_type)
        text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
        if found and found[-1][0] == kind:
            text = found.pop()[1] + text
        found.append((kind, text))
    is_command = cell.source.startswith("!")
    return [(kind, "" if is_command else _timeless(text)) for kind, text in found]


def _timeless(text: str) -> str:
    """Text without measured times: those in brackets, and those that a plan carries."""
    return re.sub(r"seconds=[\d.e-]+", "seconds=TIME", without_times(text))
