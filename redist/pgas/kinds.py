"""All questions about dtypes: what numbers they have, what results have, what computes, what casts.

NumPy alone knows nothing of bf16, and of 8-bit floats that is right; promotion and casts are ours::

    16 bits    bfloat16, float16         computed in float32, each result rounded once
    8 bits     float8_e4m3fn and others  stored, moved, indexed, reshaped and converted; no arithmetic
    the rest                             as in NumPy

A 16-bit float with integers, truth values and Python's numbers stays what it is; bf16 with f16 gives f32;
with wider floats the wider one wins; with complex numbers the result is complex. ``ml_dtypes`` gives the
dtypes of bf16 and of 8-bit floats their names in NumPy. Without it such arrays are stored and moved as bytes,
and whoever asks for their dtype is told what to install.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import ArgumentTypeError
from redist.layout.dtype import DType
from redist.text.extras import install_line

AnyDType = np.dtype[Any]
F32 = np.dtype(np.float32)
C64 = np.dtype(np.complex64)
NUMBERS = "biufc"
"""NumPy's letters of numbers; each kind holds those before it."""
_OURS = {"bf16", "f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e5m2", "f8e5m2fnuz",
         "f8e8m0fnu"}  # fmt: skip
_LONG = ("bfloat16", "float8_")
"""How the names of dtypes begin that NumPy alone does not know."""


# Which dtype is meant.


_ARRAYS: dict[str, AnyDType] = {}
"""By our name: what :func:`array_dtype` has found."""


def array_dtype(t: DType) -> AnyDType:
    """The NumPy dtype of arrays of such elements; an error that names the extra if nothing knows it.

    >>> array_dtype(DType.parse("f32"))
    dtype('float32')
    """
    found = _ARRAYS.get(t.name)
    if found is not None:
        return found
    found = t.named_numpy()
    if found.kind == "u" and t.extended_name is not None:
        raise ArgumentTypeError(
            f"cannot compute with {t}, nor make or convert it: ml_dtypes is not installed; "
            f"{install_line('dtypes')}. Without it arrays of {t} are stored and moved"
        )
    _ARRAYS[t.name] = found
    return found


def tile_dtype(t: DType) -> AnyDType:
    """The dtype of tiles in memory: as :func:`array_dtype`, raw bytes where nothing knows the elements."""
    found = _ARRAYS.get(t.name)
    return t.named_numpy() if found is None else found


def as_tile_of(t: DType, tile: Any) -> Any:
    """**Local.** A tile whose elements have their name: the same memory if it was given as raw bytes."""
    return tile if t.extended_name is None else tile.view(tile_dtype(t))


def dtype_asked(dtype: Any) -> AnyDType:
    """The dtype that a user names: as NumPy reads it, or one of ours, as ``"bf16"`` or ``"float8_e5m2"``.

    >>> dtype_asked("f4"), dtype_asked("bf16").itemsize
    (dtype('float32'), 2)
    """
    if isinstance(dtype, DType):
        return array_dtype(dtype)
    if isinstance(dtype, str) and (dtype in _OURS or dtype.startswith(_LONG)):
        return array_dtype(DType.parse(dtype))
    return np.dtype(dtype)


# What numbers it has.


@lru_cache(maxsize=512)
def number_kind(dtype: AnyDType) -> str:
    """NumPy's letter for the numbers of a dtype: ``"f"`` for all floats, those of 16 and of 8 bits too.

    >>> number_kind(np.dtype("i4")), number_kind(dtype_asked("bf16"))
    ('i', 'f')
    """
    return "f" if dtype.name.startswith(_LONG) else dtype.kind


@lru_cache(maxsize=512)
def is_half(dtype: AnyDType) -> bool:
    """Whether it is a float of 16 bits."""
    return dtype.name in ("bfloat16", "float16")


@lru_cache(maxsize=512)
def is_stored(dtype: AnyDType) -> bool:
    """Whether it is a float of 8 bits, which is stored and not computed with."""
    return dtype.name.startswith("float8_")


def is_float(dtype: AnyDType) -> bool:
    """Whether it has fractions: real or complex floats."""
    return number_kind(dtype) in "fc"


@lru_cache(maxsize=512)
def is_plain(dtype: AnyDType) -> bool:
    """Whether these are numbers, or truth values, that NumPy knows by itself, as files have them."""
    return dtype.kind in NUMBERS and not dtype.name.startswith(_LONG)


# What computes, and what a result has.


@lru_cache(maxsize=512)
def computing(dtype: AnyDType) -> AnyDType:
    """The dtype in which values are added up and decomposed: f32 for floats of 16 bits, else the same.

    >>> computing(np.dtype("f2")), computing(np.dtype("i8"))
    (dtype('float32'), dtype('int64'))
    """
    refuse_if_stored("compute", dtype)
    return F32 if is_half(dtype) else dtype


def refuse_if_stored(what: str, *dtypes: AnyDType) -> None:
    """Raise if one is a dtype of 8-bit floats, which have no arithmetic."""
    for dtype in dtypes:
        if is_stored(dtype):
            raise ArgumentTypeError(
                f"cannot {what} with {dtype}: it is for storing and moving only; convert it first, as with "
                "pgas.astype(a, pgas.bfloat16)"
            )


def promote(*given: Any) -> AnyDType:
    """The dtype of a result of such operands: dtypes, arrays, Python's numbers, or their types.

    >>> bf16 = dtype_asked("bf16")
    >>> [str(promote(bf16, other)) for other in (np.dtype("i8"), 2.0, np.dtype("f2"), np.dtype("f8"), 1j)]
    ['bfloat16', 'bfloat16', 'float32', 'float64', 'complex64']
    """
    dtypes, weak = [], []
    for one in given:
        dtype = getattr(one, "dtype", one)
        if isinstance(dtype, np.dtype):
            dtypes.append(dtype)
        elif isinstance(one, (bool, int, float, complex)):
            weak.append(one)
        elif one in (int, float, complex):  # NumPy means a dtype by it
            dtypes.append(np.dtype(one))
        else:
            dtypes.append(dtype_asked(one))
    small = {one for one in dtypes if is_half(one) or is_stored(one)}
    if not small:
        return np.result_type(*dtypes, *weak)
    if len(small) == 1 and len(dtypes) == sum(one in small for one in dtypes) and not weak:
        return dtypes[0]
    refuse_if_stored("compute", *small)
    wide = [one for one in dtypes if one not in small and is_float(one)]
    is_complex = any(isinstance(one, complex) for one in weak)
    if wide:
        return np.result_type(F32, *wide, *([1j] if is_complex else []))
    if is_complex:
        return C64
    return next(iter(small)) if len(small) == 1 else F32


def real_dtype(dtype: AnyDType) -> AnyDType:
    """The dtype of absolute values.

    >>> real_dtype(np.dtype("c8")), real_dtype(np.dtype("f8"))
    (dtype('float32'), dtype('float64'))
    """
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def complex_dtype(dtype: AnyDType) -> AnyDType:
    """The dtype of complex numbers that hold such values."""
    return promote(dtype, C64)


# What casts.


def can_cast(source: Any, target: Any, casting: str = "safe") -> bool:
    """Whether a dtype casts to another: losing no value if ``safe``, else at most by rounding, as in NumPy.

    >>> bf16 = dtype_asked("bf16")
    >>> can_cast(bf16, "f4"), can_cast("f4", bf16), can_cast("f4", bf16, "same_kind"), can_cast("i2", bf16)
    (True, False, True, False)
    """
    a, b = dtype_asked(source), dtype_asked(target)
    if not (is_half(a) or is_stored(a) or is_half(b) or is_stored(b)):
        return np.can_cast(a, b, casting)  # type: ignore[arg-type]
    if a == b or casting == "unsafe":
        return True
    kinds = number_kind(a), number_kind(b)
    if not set("".join(kinds)) <= set(NUMBERS):
        return False
    if casting == "same_kind":
        return NUMBERS.index(kinds[0]) <= NUMBERS.index(kinds[1])
    if casting != "safe":
        return False
    if kinds[0] == "f":
        return _holds(a, b)
    return kinds[0] in "biu" and kinds[1] == "f" and a.itemsize == 1 and is_half(b)


def _holds(a: AnyDType, b: AnyDType) -> bool:
    """Whether every float of one dtype is one of another."""
    if number_kind(b) not in "fc" or b.itemsize <= a.itemsize:
        return False
    if is_half(a):
        return True
    return a.name in ("float8_e4m3fn", "float8_e5m2") or b.itemsize > 2


def float_limits(dtype: Any) -> Any:
    """``numpy.finfo``, of 16- and 8-bit floats too."""
    kind = dtype_asked(dtype)
    if is_plain(kind):
        return np.finfo(kind)
    import ml_dtypes

    known: Any = ml_dtypes
    return known.finfo(kind)


def file_kind(dtype: AnyDType) -> str:
    """NumPy's letter as files have it: ``"V"`` for floats that NumPy alone does not know."""
    return "V" if dtype.name.startswith(_LONG) else dtype.kind
