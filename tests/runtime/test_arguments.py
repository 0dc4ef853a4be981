"""Arguments: what a call takes and where its result goes."""

from __future__ import annotations

import numpy as np
import pytest

import redist
from redist.errors import RequestError
from redist.plan.rates import FLAT
from redist.runtime.arguments import CallArguments
from redist.runtime.cuda import arguments as gpu_arguments
from redist.runtime.cuda.arguments import check_donated
from redist.runtime.schedule.stages import TransferStages


@pytest.mark.parametrize("donate", [False, True])
def test_a_donated_array_whose_type_does_not_change_stays(donate: bool) -> None:
    """Its plan has room for one tile, so the result is the source itself."""
    mesh = redist.Mesh(x=2)
    plan = redist.synthesize("f64[8{x}]", "f64[8{x}]", mesh=mesh, donate=donate)
    assert plan.peak_bytes == (1 if donate else 2) * 4 * 8
    local = np.arange(4.0)
    arguments = CallArguments(TransferStages.of((plan,), 0, FLAT), ("",), False)
    sources, (target,) = arguments.check_arrays(local, None)
    assert target is not None
    assert sources[0] is local
    assert np.shares_memory(target, local) == donate


@pytest.mark.parametrize(
    ("target", "room", "fits"),
    [
        ("f32[64{y}, 64{x}]", None, True),
        ("f32[64{y}, 64{x}]", 0, True),
        ("f32[64{y}, 64{x}]", -1, False),
        ("f32[64, 64{y}]", -1, True),  # one step: the source is there to the end
        ("f32[64{x}, 64{y}]", -1, True),  # no step: the result is the source
    ],
)
def test_a_donated_source_that_stays_needs_room(
    target: str, room: int | None, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit that its plan would need if the source were kept is enough; a byte less is not."""
    ends, mesh = ("f32[64{x}, 64{y}]", target), redist.Mesh(x=2, y=2)
    free = redist.synthesize(*ends, mesh=mesh, donate=True, strategy="no_permute")
    bound = free.peak_bytes_if_kept
    limit = None if room is None else max(free.peak_bytes, bound + room)
    plan = redist.synthesize(
        *ends, mesh=mesh, donate=True, strategy="no_permute", limit_bytes=limit
    )
    assert plan.steps == free.steps
    for why in ("it is a view", ""):
        monkeypatch.setattr(gpu_arguments, "why_kept", lambda array, why=why: why)
        if fits or not why:
            check_donated(plan, None, "source tile")
        else:
            said = f"it is a view, so .* takes {bound} bytes and the limit is {limit};"
            with pytest.raises(RequestError, match=said):
                check_donated(plan, None, "source tile")
