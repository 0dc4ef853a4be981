"""Element types by name; only the name and the size in bytes matter for moving data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.errors import LayoutError

_NUMPY = {
    "bool": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
# Names that NumPy alone does not know; the package ml_dtypes gives them arithmetic.
_EXTENDED = {
    "bf16": ("bfloat16", 2),
    "f8e3m4": ("float8_e3m4", 1),
    "f8e4m3": ("float8_e4m3", 1),
    "f8e4m3fn": ("float8_e4m3fn", 1),
    "f8e4m3fnuz": ("float8_e4m3fnuz", 1),
    "f8e4m3b11fnuz": ("float8_e4m3b11fnuz", 1),
    "f8e5m2": ("float8_e5m2", 1),
    "f8e5m2fnuz": ("float8_e5m2fnuz", 1),
    "f8e8m0fnu": ("float8_e8m0fnu", 1),
}
_SHORT = {long: short for short, long in _NUMPY.items()} | {
    long: short for short, (long, _) in _EXTENDED.items()
}


@dataclass(frozen=True, slots=True)
class DType:
    """An element type of fixed size.

    >>> DType.parse("float32"), DType.parse("bf16").itemsize
    (DType(name='f32', itemsize=4), 2)
    """

    name: str
    itemsize: int

    @staticmethod
    def parse(name: Any) -> DType:
        """The type called ``name``: one of ours (``f32``, ``bf16``), or a NumPy name or dtype of fixed size.

        PyTorch dtypes, such as ``torch.float32``, work as well.

        >>> DType.parse(np.zeros(3).dtype).name
        'f64'
        """
        if type(name).__module__ == "torch":  # a torch.dtype prints as torch.float32
            name = str(name).removeprefix("torch.")
        if not isinstance(name, str):
            return DType._of_numpy(name)
        short = _SHORT.get(name, name)
        if short in _NUMPY:
            return DType(short, np.dtype(_NUMPY[short]).itemsize)
        if short in _EXTENDED:
            return DType(short, _EXTENDED[short][1])
        if name == "f8":
            raise LayoutError(
                "cannot use dtype 'f8': it is ambiguous; write f64, or f8e4m3fn, f8e5m2, ..."
            )
        return DType._of_numpy(name)

    @staticmethod
    def _of_numpy(name: Any) -> DType:
        try:
            dtype = np.dtype(name)
        except (TypeError, ValueError, SyntaxError):
            dtype = None
        if dtype is None or dtype.hasobject or dtype.itemsize == 0 or dtype.names is not None:
            known = ", ".join([*_NUMPY, *_EXTENDED])
            raise LayoutError(
                f"unknown dtype {name!r}; known: {known}, or a NumPy name of fixed size"
            )
        if not dtype.isnative or dtype.subdtype is not None:
            raise LayoutError(f"cannot use dtype {name!r}: need one element in native byte order")
        if dtype.name in _SHORT:
            return DType.parse(_SHORT[dtype.name])
        return DType(
            dtype.str.lstrip("|<=>") if dtype.kind in "SUV" else dtype.name, dtype.itemsize
        )

    def to_numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype that holds these elements; raw bytes if NumPy has no such type.

        >>> DType.parse("f64").to_numpy(), DType.parse("bf16").to_numpy()
        (dtype('float64'), dtype('uint16'))
        """
        if self.name in _EXTENDED:
            return np.dtype(f"u{self.itemsize}")
        return np.dtype(_NUMPY.get(self.name, self.name))

    def named_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype with the name of these elements: for bf16 and 8-bit floats, that of ``ml_dtypes``.

        If ``ml_dtypes`` is not installed, raw bytes as from :meth:`to_numpy`.

        >>> DType.parse("f16").named_numpy()
        dtype('float16')
        """
        long = self.extended_name
        if long is None:
            return self.to_numpy()
        try:
            import ml_dtypes
        except ImportError:
            return self.to_numpy()
        return np.dtype(getattr(ml_dtypes, long))

    def raw(self, array: Any) -> Any:
        """View an array of these elements with the dtype of :meth:`to_numpy`; None stays None.

        >>> DType.parse("bf16").raw(np.zeros(2, "u2")).dtype, DType.parse("f32").raw(None)
        (dtype('uint16'), None)
        """
        if array is None or self.name not in _EXTENDED:
            return array
        return array.view(self.to_numpy())

    @property
    def extended_name(self) -> str | None:
        """The name in ``ml_dtypes`` if NumPy has no such type, else None."""
        return _EXTENDED[self.name][0] if self.name in _EXTENDED else None

    def __str__(self) -> str:
        return self.name
