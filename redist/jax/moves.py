"""What happens to one array: a plan moves it, JAX moves it, or it stays as it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from redist.errors import ConversionError, RedistError, RequestError
from redist.jax.choose import choose_plan, is_reused, least_bytes, same_limit
from redist.jax.compiled import placed, to_jax
from redist.jax.types import (
    check_cut,
    has_plans,
    on_one_axis,
    sharding_from,
    sharding_like,
    type_under,
)
from redist.layout.array_type import ArrayType
from redist.plan.plan import Plan
from redist.plan.rates import XLA

ARRAYS = (jax.Array, np.ndarray, jax.ShapeDtypeStruct)
"""What has a shape and may get a sharding; all else is handed on."""


@dataclass(frozen=True, slots=True)
class LeafMove:
    """A value and where it goes; ``name`` is its place in a tree, empty for a single array.

    ``own`` is its present sharding, in device memory: an array in ``pinned_host`` is put there first.
    ``wanted`` is the sharding that it gets, or None if the value stays. ``ends`` are the types before and
    after, over one mesh. They are None if JAX moves the value by itself: from the host, between different
    devices, by another name for the same tiles, or because it is empty or plans do not support its dtype.
    """

    name: str
    value: Any
    own: NamedSharding | None = None
    wanted: NamedSharding | None = None
    ends: tuple[ArrayType, ArrayType] | None = None

    @property
    def before_bytes(self) -> int:
        """The bytes of it that a device holds before the move."""
        if self.ends is not None:
            return self.ends[0].tile_bytes
        return tile_bytes(self.value, self.value.sharding) if is_on_devices(self.value) else 0

    @property
    def after_bytes(self) -> int:
        """The bytes of the result that a device holds."""
        if self.ends is not None:
            return self.ends[1].tile_bytes
        if not self.is_moved:
            return self.before_bytes
        return tile_bytes(self.value, self.wanted)

    @property
    def is_renamed(self) -> bool:
        """Whether the tiles are the same before and after, and in the same memory."""
        return (
            self.wanted is not None
            and is_on_devices(self.value)
            and self.value.sharding.is_equivalent_to(self.wanted, self.value.ndim)
        )

    @property
    def is_moved(self) -> bool:
        """Whether anything has to move."""
        return self.wanted is not None and not self.is_renamed

    def least_bytes(self, donate: bool) -> int:
        """The least memory that a device holds while it moves, including the array itself and the result."""
        if self.ends is not None:
            return least_bytes(*self.ends, donate, self.platform)
        if not self.is_moved:
            return self.before_bytes
        return self.before_bytes + self.after_bytes

    @property
    def platform(self) -> str:
        """What its devices are: ``cpu``, ``gpu`` or ``tpu``."""
        assert self.wanted is not None
        return platform_of(self.wanted)

    def program(self, limit_bytes: int | None = None, donate: bool = False) -> Any:
        """The plan as a function that XLA compiles at its first call."""
        assert self.ends is not None and self.own is not None and self.wanted is not None
        limit = same_limit(*self.ends, limit_bytes, donate, self.platform)
        return compiled(*self.ends, limit, donate, self.own, self.wanted)

    def run(self, limit_bytes: int | None = None, donate: bool = False) -> Any:
        """Move the value, and return the result."""
        if self.wanted is None:
            return self.value
        is_traced = isinstance(self.value, jax.core.Tracer)
        if self.ends is None and is_traced and self._keeps_devices:
            return placed(self.value, self.wanted)
        if self.ends is None:
            can_give = donate and is_on_devices(self.value) and not self.is_renamed
            return jax.device_put(self.value, self.wanted, donate=can_give)
        value = self.value
        if not is_traced and value.sharding.memory_kind != self.own_kind:
            value = jax.device_put(value, self.own)
        moved = self.program(limit_bytes, donate)(value)
        if donate and not is_traced and not self.value.is_deleted():
            self.value.delete()  # its memory is of another size than the result's, or XLA had no use for it
        return moved

    @property
    def own_kind(self) -> str | None:
        """The kind of memory that it moves from."""
        return None if self.own is None else self.own.memory_kind

    @property
    def is_kind_alone(self) -> bool:
        """Whether only the kind of memory changes, and the tiles stay as they are."""
        if self.wanted is None or self.own is None or not is_on_devices(self.value):
            return False
        ndim = len(self.value.shape)
        return self.own.is_equivalent_to(in_device_memory(self.wanted), ndim) and self.is_moved

    @property
    def _keeps_devices(self) -> bool:
        assert self.wanted is not None
        if self.own is None:
            return False
        return list(self.own.mesh.devices.flat) == list(self.wanted.mesh.devices.flat)


def is_on_devices(value: Any) -> bool:
    """Whether a value is an array that knows where it is, or the shape of one."""
    if isinstance(value, jax.ShapeDtypeStruct):
        return value.sharding is not None
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def in_device_memory(sharding: NamedSharding) -> NamedSharding:
    """The same sharding in the memory in which devices compute."""
    if not isinstance(sharding.mesh, jax.sharding.Mesh):
        return sharding
    kind = sharding.mesh.devices.flat[0].default_memory().kind
    is_there = sharding.memory_kind in (None, kind)
    return sharding if is_there else sharding.with_memory_kind(kind)


def platform_of(sharding: NamedSharding) -> str:
    """What the devices of a sharding are: ``cpu``, ``gpu`` or ``tpu``."""
    return str(sharding.mesh.devices.flat[0].platform)


def tile_bytes(x: Any, sharding: Any) -> int:
    """Bytes of an array on one device."""
    return math.prod(sharding.shard_shape(tuple(x.shape))) * x.dtype.itemsize


def move_of(name: str, value: Any, sharding: Any, source: Any = None) -> LeafMove:
    """What happens to a value that should get a sharding; an error names its place in the tree."""
    if sharding is None or not isinstance(value, ARRAYS):
        return LeafMove(name, value)
    try:
        return _move_of(name, value, sharding, source)
    except RedistError as problem:
        if not name:
            raise
        raise ConversionError(f"{name}: {problem}") from problem


def _move_of(name: str, value: Any, sharding: Any, source: Any) -> LeafMove:
    shape, dtype = tuple(value.shape), value.dtype
    if isinstance(value, np.ndarray):
        if not isinstance(sharding, NamedSharding):
            raise RequestError(
                f"cannot put a NumPy array on devices by {sharding}: it has no mesh yet; "
                "give a NamedSharding(mesh, ...)"
            )
        check_cut(sharding, shape, dtype)
        return LeafMove(name, value, None, sharding)
    own = sharding_from(value, source)
    wanted = sharding_like(value, sharding, own)
    if own == wanted and is_on_devices(value):
        return LeafMove(name, value)
    _check_alive(value)
    if isinstance(own, jax.sharding.SingleDeviceSharding):
        check_cut(wanted, shape, dtype)
        return LeafMove(name, value, None, wanted)
    own = sharding_like(value, own)
    if own != in_device_memory(own) and not is_on_devices(value):
        raise RequestError(
            f"cannot move an array inside jit from {own.memory_kind} memory: plans run on devices; "
            "put it there first with jax.device_put(x, sharding.with_memory_kind('device'))"
        )
    own = in_device_memory(own)
    if not has_plans(dtype) or 0 in shape:
        check_cut(wanted, shape, dtype)
        return LeafMove(name, value, own, wanted)
    before, after = ends_of(shape, dtype, own, wanted)
    if before.mesh != after.mesh:
        return LeafMove(name, value, own, wanted)
    if is_on_devices(value) and own.is_equivalent_to(in_device_memory(wanted), value.ndim):
        return LeafMove(name, value, own, wanted)
    return LeafMove(name, value, own, wanted, (before, after))


def _check_alive(value: Any) -> None:
    """Refuse an array whose memory is gone, before XLA meets it."""
    if isinstance(value, jax.Array) and is_on_devices(value) and value.is_deleted():
        raise RequestError(
            f"cannot move an array of shape {tuple(value.shape)}: it was donated or deleted; "
            "use what the call that took it returned"
        )


@lru_cache(maxsize=2**12)
def ends_of(
    shape: tuple[int, ...], dtype: Any, source: NamedSharding, target: NamedSharding
) -> tuple[ArrayType, ArrayType]:
    """Types before and after; of one mesh, where two are of the same devices in one order."""
    before, after = (type_under(sharding, shape, dtype) for sharding in (source, target))
    if before.mesh != after.mesh and before.mesh.ranks == after.mesh.ranks:
        return on_one_axis(before), on_one_axis(after)
    return before, after


@lru_cache(maxsize=2**12)
def plan_between(
    source: ArrayType, target: ArrayType, limit_bytes: int | None, donate: bool, platform: str
) -> Plan:
    """The plan by which an array moves, found once."""
    return choose_plan(source, target, limit_bytes, donate, platform)


@lru_cache(maxsize=2**12)
def compiled(
    source: ArrayType,
    target: ArrayType,
    limit_bytes: int | None,
    donate: bool,
    own: NamedSharding,
    wanted: NamedSharding,
) -> Any:
    """The plan as a function that XLA compiles at its first call."""
    plan = plan_between(source, target, limit_bytes, donate, platform_of(wanted))
    run = to_jax(plan, wanted.mesh, topology=XLA, ends=(own, wanted))
    given = (0,) if donate and is_reused(source, target) else ()
    return jax.jit(run, out_shardings=wanted, donate_argnums=given)
