"""Imports between packages point down only, and modules import each other in no circle.

``PACKAGES`` names the packages inside a package, lowest first: one may import from those before it. Single
modules have no place in an order; they must only be free of circles. What ``__init__.py`` says is the
package's face: it may import all children, and no child imports it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("layers")
"""One worker parses every module."""

ROOT = Path(__file__).resolve().parents[1]

PACKAGES: dict[str, str] = {
    "redist.runtime": (
        "copies shm schedule ranks lanes files index_sets elements onesided host cuda refit datatypes"
    ),
    "redist.runtime.cuda": "kernels transports",
    "redist.pgas": (
        "watch tiles spill elementwise indexing shapes reductions products ordering onesided ghosts "
        "joins files foreign linalg fft random statistics gradients programs"
    ),
    "redist.pgas.programs": "passes planning limited",
    "redist.measure": "contenders results",
    "redist.learn": "kernels near vectors cluster datasets linear_model metrics",
}
"""The packages inside each package, lowest first."""

FACADES = {
    ("redist.layout.array_type", "redist.layout.notation"),
    ("redist.plan.plan", "redist.plan.serial"),
    ("redist.plan.plan", "redist.plan.table"),
    ("redist.plan.plan", "redist.draw*"),
    ("redist.plan.plan", "redist.lower*"),
    ("redist.plan.plan", "redist.jax*"),
    ("redist.plan.plan", "redist.torch*"),
    ("redist.pgas.global_array", "redist.pgas"),
    ("redist.graph.nodes", "redist.graph.picture"),
    ("redist.refits.weights", "redist.refits.held"),
    ("redist.refits.weights", "redist.refits.manifest"),
    ("redist.refits.weights", "redist.refits.sources"),
    ("redist.refits.weights", "redist.refits.weights_files"),
    ("redist.refits.plan", "redist.refits.manifest"),
    ("redist.refits.plan", "redist.refits.picture"),
    ("redist.refits.plan", "redist.refits.serial"),
    ("redist.refits.plan", "redist.refits.table"),
}
"""Methods that call upwards, by an import inside a function: text of a type, forms of a plan, of weights and
of a refit, and the namespace of an array, which the standard asks for."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / "redist").rglob("*.py"))}


@cache
def imports_of(module: str) -> tuple[tuple[int, str], ...]:
    """Line and module of everything that a module imports, also inside functions."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            if name:
                yield node.lineno, name


def child_of(package: str, module: str) -> str | None:
    """The child of a package that a module belongs to; None for the package itself and what is outside.

    >>> child_of("redist.pgas", "redist.pgas.fft.functions"), child_of("redist.pgas", "redist.pgas")
    ('fft', None)
    """
    inside = module.startswith(f"{package}.")
    return module[len(package) + 1 :].split(".")[0] if inside else None


def is_facade(module: str, name: str) -> bool:
    return any(module == one and fnmatch(name, other) for one, other in FACADES)


def wrong_imports(package: str) -> list[str]:
    """Imports that point to a later package, as ``module:line imports name``."""
    order = PACKAGES[package].split()
    found = []
    for module in MODULES:
        own = child_of(package, module)
        if own not in order:
            continue
        for line, name in imports_of(module):
            other = child_of(package, name)
            up = other in order and order.index(other) > order.index(own)
            if up and not is_facade(module, name):
                found.append(f"{module}:{line} imports {name}")
    return found


def test_every_package_has_its_place() -> None:
    inside: dict[str, set[str]] = {}
    for path in (ROOT / "redist").rglob("__init__.py"):
        package, _, child = module_name(path).rpartition(".")
        if package:
            inside.setdefault(package, set()).add(child)
    several = {package: own for package, own in inside.items() if len(own) > 1}
    del several["redist"]  # LAYERS of tests/test_project.py
    assert several == {package: set(order.split()) for package, order in PACKAGES.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_between_packages_point_down(package: str) -> None:
    assert not wrong_imports(package)


def test_no_module_imports_the_face_of_its_package() -> None:
    for module in MODULES:
        for line, name in imports_of(module):
            inside = module.startswith(f"{name}.") and MODULES[name].name == "__init__.py"
            assert not inside or is_facade(module, name), f"{module}:{line} imports {name}"


MOVERS = {
    "redist.runtime.redistribute": {"redistribute", "redistribute_with_transfer"},
    "redist.runtime.elements.by_index": {"exchange"},
    "redist.runtime.elements.by_position": {"fetch", "store"},
    "redist.runtime.passing": {"exchange", "select", "fetch", "store"},
    "redist.runtime.ranks.collectives": {"exchange", "tell_all"},
}
"""The functions of the runtime that move elements."""
NO_ELEMENTS = ("redist.pgas.watch.seam", "redist.pgas.compare_ranks")
"""The seam itself, and what compares a digest of calls."""


def test_global_arrays_move_elements_through_one_seam_only() -> None:
    for module, path in MODULES.items():
        if not module.startswith("redist.pgas.") or module in NO_ELEMENTS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in MOVERS:
                found = {alias.name for alias in node.names} & MOVERS[node.module]
                assert not found, f"{module}:{node.lineno} imports {found}: use traffic()"


def test_no_file_imports_itself_through_others() -> None:
    edges = {m: {n for _, n in imports_of(m) if n != m and not is_facade(m, n)} for m in MODULES}
    state: dict[str, str] = {}

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != "open", " -> ".join((*path, module))
        if module in state:
            return
        state[module] = "open"
        for other in sorted(edges[module]):
            walk(other, (*path, module))
        state[module] = "done"

    for module in MODULES:
        walk(module, ())
