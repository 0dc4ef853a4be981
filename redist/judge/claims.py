"""What a proof of one plan covers, what it does not say, and which theorems it rests on, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from redist.layout.array_type import ArrayType
from redist.plan.plan import Plan
from redist.plan.steps import AllGather, AllPermute, AllToAll, Slice
from redist.runtime.ranks.control_page import LEAST_POOL_BYTES
from redist.text.units import format_bytes

THEOREMS = {
    "tiles": "tiles cover every index; devices that differ on unused axes alone hold the same",
    "rules": "every step keeps the global array",
    "exchange": "every device receives exactly what it lacks, and none can do with less",
    "pending": "how many receives combining partial values takes, and that fewer are not enough",
    "senders": "replicas take turns in sending",
    "memory": "what a step keeps alive is what the model says, within the formula",
    "allocations": "what the runtime allocates is within the model",
    "rounds": "rounds pass every byte once, within the staging",
    "pairing": "every send meets its receive, and no ranks wait in a circle",
}
"""What a proof of one plan rests on: theorems of ``proofs/`` by name, in words."""


def holds_for(plan: Plan) -> list[str]:
    """The arrays that the proof covers, in words."""
    from redist.check.families import unit_dims

    units = unit_dims(plan)
    if plan.limit_bytes is not None:
        return ["this array alone: under a limit staging is what the limit leaves"]
    if plan.source.global_elems == 0 or not plan.source.shape:
        return ["this array"]
    if units is not None:
        sizes = " and ".join(_multiples_text(units, k) for k in sorted(set(units), reverse=True))
        return ["this array", f"every array with {sizes}, by the same steps on the same mesh"]
    nests = any(isinstance(s.action, (Slice, AllGather, AllToAll, AllPermute)) for s in plan.steps)
    legal = " where these stay legal" if nests else ""
    grown = [f"dim {i} of any size from {n} on" for i, n in enumerate(plan.source.shape)]
    return ["this array", *(f"{dim}, all else the same, by the same steps{legal}" for dim in grown)]


def list_gaps(plan: Plan) -> list[str]:
    """What the proof does not say."""
    out = []
    if plan.source.global_elems and plan.source.shape:
        out.append("other sizes: plan them, every plan is proved by itself")
    if plan.steps:
        searched = "search was exact" if plan.search == "exact" else "search was bounded"
        out.append(f"that no plan is better (the {searched}), and the modelled time")
    if plan.target.pending_op is not None:
        out.append("that the lower bound is the least: tested, where a reduction stays pending")
    out.append("memory of Python and MPI, and of a communicator's control pages and tables")
    if any(s.received_bytes and s.staging_bytes < LEAST_POOL_BYTES for s in plan.steps):
        least = format_bytes(LEAST_POOL_BYTES)
        out.append(f"staging of less than {least}: a run takes {least} at least")
    return out


def rests_on(plan: Plan) -> list[str]:
    """Names of the theorems of ``proofs/`` that say the same for every size."""
    needed = {
        "rules": bool(plan.steps),
        "exchange": plan.received_bytes > 0,
        "pending": any(t.pending_op is not None for t in plan.types),
        "senders": plan.received_bytes > 0 and any(map(_replicates, plan.types[:-1])),
        "rounds": plan.received_bytes > 0,
        "pairing": plan.received_bytes > 0,
    }
    return [name for name in THEOREMS if needed.get(name, True)]


def _replicates(t: ArrayType) -> bool:
    return math.prod(part.size for part in t.used) < t.mesh.n_devices


def _multiples_text(units: Sequence[int], k: int) -> str:
    """The dims whose unit is k: ``dims 0, 2 multiples of 4``.

    >>> _multiples_text((4, 1, 4), 4), _multiples_text((4, 1, 4), 1)
    ('dims 0, 2 multiples of 4', 'dim 1 of any size')
    """
    dims = [str(i) for i, unit in enumerate(units) if unit == k]
    if len(dims) == 1:
        return f"dim {dims[0]} {'of any size' if k == 1 else f'a multiple of {k}'}"
    return f"dims {', '.join(dims)} {'of any size' if k == 1 else f'multiples of {k}'}"
