"""Dtypes: promotion, casts, limits; and that nobody but one module asks about them."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redist
from redist import pgas
from redist.pgas import kinds
from redist.pgas.kinds import can_cast, dtype_asked, promote

pytest.importorskip("ml_dtypes", reason="bf16 and 8-bit floats need ml_dtypes")
BF16, F16 = dtype_asked("bf16"), dtype_asked("float16")
E4, E5 = dtype_asked("f8e4m3fn"), dtype_asked("float8_e5m2")
JAX = {
    "bool": "bf16", "i1": "bf16", "u1": "bf16", "i4": "bf16", "i8": "bf16", "u8": "bf16",
    "f2": "float32", "f4": "float32", "f8": "float64", "c8": "complex64", "c16": "complex128",
}  # fmt: skip
"""What bf16 with another dtype is, in the table of JAX."""


@pytest.mark.parametrize("other", JAX)
def test_bf16_promotes_as_in_jax(other: str) -> None:
    kind, made = np.dtype(other), dtype_asked(JAX[other])
    assert promote(BF16, kind) == promote(kind, BF16) == made
    x, y = pgas.ones(3, dtype=BF16), pgas.ones(3, dtype=kind)
    assert (x * y).dtype == (y * x).dtype == pgas.result_type(x, y) == made


def test_f16_stays_with_integers_and_numbers_of_python() -> None:
    x = pgas.ones(3, dtype=F16)
    assert [(x + other).dtype for other in (2, 2.5, True)] == [F16] * 3
    assert (x + pgas.ones(3, dtype=np.int64)).dtype == F16
    assert (x + 1j).dtype == (pgas.ones(3, dtype=BF16) * 1j).dtype == np.complex64
    assert promote(F16, BF16) == np.float32
    assert (x + np.float64(1)).dtype == np.float64


def test_without_small_floats_numpy_decides() -> None:
    names = ["?", "i1", "u2", "i8", "f4", "f8", "c8", "c16"]
    for a, b in itertools.product(map(np.dtype, names), repeat=2):
        assert promote(a, b) == np.result_type(a, b)
        assert can_cast(a, b) == np.can_cast(a, b)
    assert promote(np.float32, 1.0) == np.result_type(np.float32, 1.0)


def test_a_cast_is_safe_if_every_value_survives() -> None:
    ml = pytest.importorskip("ml_dtypes")
    every = [np.dtype(one) for one in ("?", "i1", "u1", "i2", "u2", "f2", "f4")]
    for a, b in itertools.product([*every, BF16, E4, E5], repeat=2):
        if a.itemsize > 2 or not {a, b} & {BF16, F16, E4, E5}:
            continue
        if b in (E4, E5) and kinds.number_kind(a) != "f":
            continue
        bits = np.arange(2 ** (8 * a.itemsize), dtype=f"u{a.itemsize}")
        values = (bits[:2] if a == np.bool_ else bits).view(a)
        with np.errstate(all="ignore"):
            there = values.astype(np.float64)
            back = values.astype(b).astype(np.float64)
        kept = bool((there == back)[~np.isnan(there)].all())
        is_down = kinds.number_kind(b) in "biu" and kinds.number_kind(a) == "f"
        assert can_cast(a, b) == (kept and not is_down), (a, b)
    assert can_cast(np.float32, BF16, "same_kind") and not can_cast(BF16, np.int64, "same_kind")
    assert ml.finfo(BF16).bits == 16


def test_the_standard_knows_16_bit_floats() -> None:
    assert pgas.isdtype(pgas.bfloat16, "real floating") and pgas.isdtype(BF16, "numeric")
    assert not pgas.isdtype(BF16, ("integral", "complex floating"))
    assert pgas.isdtype(BF16, pgas.bfloat16) and not pgas.isdtype(BF16, F16)
    found = pgas.finfo(pgas.zeros(1, dtype=BF16))
    assert (found.bits, found.eps, found.dtype) == (16, 2.0**-7, BF16)
    assert pgas.finfo("f8e5m2").max == 57344
    assert pgas.can_cast(pgas.zeros(1, dtype=BF16), np.float32)
    assert not pgas.can_cast(np.int32, BF16)
    assert pgas.result_type(BF16, 1.0) == BF16


def test_an_array_of_bytes_named_bf16_is_one_of_bf16() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    a = pgas.from_local(bits, "bf16[2]", mesh=redist.Mesh(x=1))
    assert a.dtype == BF16 and (a + a).tolist() == [2.0, 4.0]
    assert np.may_share_memory(a.local, bits)


def test_results_are_rounded_to_nearest_even() -> None:
    a = pgas.asarray(np.array([1.0, 1.0078125], np.float32), dtype=BF16)
    assert (a + 2.0**-8).tolist() == [1.0, 1.015625]
    assert (a * 3).dtype == BF16


@pytest.mark.parametrize("kind", [E4, E5], ids=str)
def test_8_bit_floats_are_stored_and_refuse_arithmetic(kind: Any) -> None:
    a = pgas.asarray(np.arange(8.0).reshape(4, 2), dtype=kind)
    assert a.T[:, 1:3].reshape(-1).astype(np.float32).tolist() == [2.0, 4.0, 3.0, 5.0]
    assert pgas.concat([a, a]).dtype == kind
    for call in (
        lambda: a + 1, lambda: a @ a.T, lambda: a == a, lambda: pgas.mean(a), lambda: pgas.sort(a),
        lambda: pgas.max(a), lambda: -a, lambda: pgas.cumulative_sum(a, axis=0), lambda: pgas.var(a),
        lambda: a.__iadd__(1), lambda: pgas.astype(a, BF16) + a,
    ):  # fmt: skip
        with pytest.raises(redist.ArgumentTypeError, match=f"with {kind}: it is for storing"):
            call()


MISSING = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, redist
from redist import pgas
bits = np.arange(6, dtype=np.uint16).reshape(3, 2)
a = pgas.from_local(bits, "bf16[3, 2]", mesh=redist.Mesh(x=1))
assert a.to("{}, {x}").gather().tolist() == bits.tolist()
for call in (lambda: a + 1, lambda: a.dtype, lambda: pgas.sum(a), lambda: pgas.zeros(3, dtype="bf16"),
             lambda: pgas.bfloat16, lambda: a @ a.T, lambda: a.astype(float)):
    try:
        call()
        raise SystemExit("not refused")
    except redist.ArgumentTypeError as problem:
        assert "ml_dtypes is not installed; pip install ml_dtypes" in str(problem), problem
assert (pgas.ones(3, dtype="f2") + 1).dtype == np.float16
"""


def test_without_ml_dtypes_one_error_names_it_and_arrays_move() -> None:
    subprocess.run([sys.executable, "-c", MISSING], check=True)


ASKING = re.compile(
    r"dtype\.kind\b|(?<!\w)kind\.kind\b|\b(?:result_type|promote_types|min_scalar_type)\(|np\.finfo"
    r"|np\.can_cast|\.to_numpy\(\)"
)
ALLOWED = {"conversion.py": 1, "namespace_info.py": 1, "parquet.py": 1}
"""Tiles given as raw bytes; the standard's own function; a method of another library."""


def test_one_module_answers_all_questions_about_dtypes() -> None:
    """NumPy's answers are wrong for bf16, and quietly so."""
    root = Path(pgas.__file__).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        asked = [line.strip() for line in lines if ASKING.search(line)]
        asked = [line for line in asked if not line.startswith((">>>", '"', "..."))]
        if path.name != "kinds.py" and len(asked) > ALLOWED.get(path.name, 0):
            found[path.name] = asked
    assert not found, "ask redist.pgas.kinds instead"
