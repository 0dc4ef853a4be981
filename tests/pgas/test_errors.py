"""Every error that global arrays raise is one of redist's, and of the type that the standard names."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import redist
from redist import errors, pgas

ROOT = Path(__file__).resolve().parents[2]


def raised(path: Path) -> set[str]:
    """The names of the errors that a module makes to raise them."""
    return {
        node.exc.func.id.lstrip("_")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }


@pytest.mark.parametrize("path", sorted((ROOT / "redist" / "pgas").rglob("*.py")), ids=str)
def test_modules_raise_errors_of_redist(path: Path) -> None:
    made = {
        "out_of_bounds",
        "error",
        "as_error",
    }  # an argument of type[RedistError], functions that make one
    for name in raised(path) - made:
        error = getattr(errors, name, None)
        assert error is not None and issubclass(error, redist.RedistError), name


@pytest.mark.parametrize(
    ("kind", "mistake"),
    [
        (ValueError, lambda a: pgas.reshape(a, (5,))),
        (TypeError, lambda a: float(a)),
        (IndexError, lambda a: a[9]),
        (AttributeError, lambda a: a.strides),
        (AttributeError, lambda a: pgas.interp),
    ],
)
def test_mistakes_have_the_type_of_the_standard_too(kind: type[Exception], mistake: object) -> None:
    a = pgas.zeros((4,))
    with pytest.raises(kind) as caught:
        mistake(a)  # type: ignore[operator]
    assert isinstance(caught.value, redist.RedistError)


@pytest.mark.parametrize("key", ["income", ["income", "age"], (slice(None), "income")])
def test_an_index_by_name_says_how_to_take_a_column(key: Any) -> None:
    by_name = r"a column by name: a\[:, names.index\('income'\)\] with names = pgas.column_names\("
    with pytest.raises(IndexError, match=by_name):
        pgas.zeros((4, 2))[key]
    with pytest.raises(IndexError, match=r"booleans$"):
        pgas.zeros((4, 2))[1.5]
