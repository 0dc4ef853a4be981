"""Types of gradients: where an array is replicated, its gradient is a pending sum, and the reverse."""

from __future__ import annotations

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.plan.rules import difference


def dual_type(t: ArrayType) -> ArrayType:
    """The type of what pairs with an array of type ``t``, device by device.

    >>> from redist.layout.mesh import Mesh
    >>> print(dual_type(ArrayType.parse("f32[8{x}, 8]", Mesh(x=2, y=4))))
    f32[8{x}, 8] sum{y}
    >>> print(dual_type(ArrayType.parse("f32[8{x}, 8] sum{y}", Mesh(x=2, y=4))))
    f32[8{x}, 8]

    The sum over devices of the products of their tiles is then the product of the global arrays.
    """
    if t.pending_op not in (None, "sum"):
        raise LayoutError(f"cannot take the dual of {t}: a pending {t.pending_op} is not linear")
    everything = [whole(t.mesh, name) for name, _ in t.mesh.axes]
    idle = difference(everything, t.used)
    return t.with_pending("sum" if idle else None, idle)
