"""Shared memory without a name: found by address, read by others, gone with its last array."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from redist.runtime.shm import segments
from redist.runtime.shm.segments import (
    allocated_bytes,
    attach,
    can_share,
    find,
    leave_segment,
    release_pages,
    shared_bytes,
    shared_empty,
)

pytestmark = pytest.mark.skipif(not can_share(), reason="needs memory files (Linux)")

READER = """
import sys
from redist.runtime.shm.segments import Handle, attach
*handle, offset, size = map(int, sys.argv[1:])
sys.stdout.buffer.write(attach(Handle(*handle))[offset : offset + size].tobytes())
"""


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3), (4, 5)])
@pytest.mark.parametrize("dtype", ["u1", "f8", "S5", "V7", "c16"])
def test_arrays_of_any_shape_are_zeroed_writeable_and_found(
    shape: tuple[int, ...], dtype: str
) -> None:
    array = shared_empty(shape, np.dtype(dtype))
    assert array.shape == shape and array.dtype == np.dtype(dtype)
    assert array.flags.writeable and array.flags.c_contiguous
    assert not any(array.tobytes())
    found = find(array)
    assert found is not None
    assert found[0].pid == os.getpid()
    assert found[1] >= 0 and found[1] + array.nbytes <= found[0].n_bytes


def test_parts_of_an_array_are_found_with_their_offset() -> None:
    array = shared_empty((4, 8), np.dtype("f4"))
    for part in (array[1:], array[2, 3:], array[::-1], array.T):
        found = find(part)
        assert found is not None
        start = array.__array_interface__["data"][0] - find(array)[1]  # type: ignore[index]
        assert found[1] == part.__array_interface__["data"][0] - start


def test_other_memory_is_not_found() -> None:
    kept = [shared_bytes(n) for n in (1, 4096, 5000)]
    assert find(np.zeros(100)) is None
    assert find(np.zeros(10**7)) is None
    assert len({find(array) for array in kept}) == 3


def test_another_process_reads_it() -> None:
    array = shared_bytes(5000)
    array[:] = np.random.default_rng(0).integers(0, 256, 5000)
    found = find(array)
    assert found is not None
    handle, offset = found
    fields = [*map(str, (handle.pid, handle.fd, handle.number, handle.n_bytes, offset, 5000))]
    done = subprocess.run(
        [sys.executable, "-c", READER, *fields], capture_output=True, check=True, timeout=60
    )
    assert done.stdout == array.tobytes()


def test_what_is_mapped_is_the_same_memory_and_read_only() -> None:
    array = shared_bytes(100)
    found = find(array)
    assert found is not None
    other = attach(found[0])[found[1] :]
    array[7] = 99
    assert other[7] == 99
    with pytest.raises(ValueError, match="read-only"):
        other[0] = 1


def test_pages_are_gone_with_the_last_array() -> None:
    shared_bytes(1)
    before = allocated_bytes(), set(segments._LIVE.blocks)
    array = shared_empty((2**17,), np.dtype("f8"))
    array[:] = 1
    view = array[5:]
    del array
    gc.collect()
    assert find(view) is not None and allocated_bytes() >= before[0] + 2**20
    del view
    gc.collect()
    assert (allocated_bytes(), set(segments._LIVE.blocks)) == before
    assert not shared_bytes(2**20).any()


def test_any_number_of_arrays_takes_few_descriptors_and_mappings() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = [shared_bytes(2**18) for _ in range(2000)]
    for k, array in enumerate(kept):
        array[:] = k % 251
    others = [attach(find(array)[0])[find(array)[1] :] for array in kept]  # type: ignore[index]
    assert len(os.listdir("/proc/self/fd")) < before + 10
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert maps.count("memfd:redist-") < 20
    assert all((other[: 2**18] == k % 251).all() for k, other in enumerate(others))


def test_a_child_of_this_process_leaves_its_memory_alone() -> None:
    array = shared_bytes(2**16)
    array[:] = 5
    child = os.fork()
    if child == 0:
        mine = shared_bytes(2**16)
        mine[:] = 6
        address = array.__array_interface__["data"][0]
        del array
        gc.collect()
        os._exit(int(mine.__array_interface__["data"][0] == address))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == 5).all()
    assert (shared_bytes(2**16) == 0).all()


def test_memory_that_was_left_is_never_lent_again() -> None:
    array = shared_bytes(2**20)
    array[:] = 5
    found = find(array)
    assert found is not None
    other, address = attach(found[0], writes=True)[found[1] :], array.ctypes.data
    leave_segment(array)
    other[:10] = 9
    assert (array == 5).all() and find(array) is None and find(array[3:]) is None
    del array
    gc.collect()
    kept = [shared_bytes(2**16) for _ in range(100)]
    assert all(not address <= one.ctypes.data < address + 2**20 for one in kept)


def test_it_has_no_name() -> None:
    array = shared_bytes(10**6)
    array[:] = 1
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert "memfd:redist-" in maps
    assert not [name for name in os.listdir("/dev/shm") if "redist" in name]


def test_pages_of_a_donated_array_go_back() -> None:
    array = shared_bytes(10 * 2**20)
    before = allocated_bytes()
    array[:] = 7
    assert allocated_bytes() >= before + 10 * 2**20
    release_pages(array[100:-100])
    assert allocated_bytes() < before + 2**17
    assert (array[:100] == 7).all() and (array[-100:] == 7).all()
    private = np.full(10 * 2**20, 7, np.uint8)
    release_pages(private[100:-100])
    assert (private[:100] == 7).all() and (private[-100:] == 7).all()
    assert int(private.sum()) < 7 * 2**20


@pytest.mark.parametrize("axes", [(2, 1, 0), (1, 0, 2)])
def test_pages_go_back_in_any_order_of_dims(axes: tuple[int, ...]) -> None:
    private = np.full((4, 2**8, 2**12), 7, np.uint8)
    release_pages(private.transpose(axes))
    assert int(private.sum()) < 7 * 2**14
    shared = shared_bytes(2**22).reshape(private.shape)
    before = allocated_bytes()
    shared[:] = 7
    release_pages(shared.transpose(axes))
    assert allocated_bytes() < before + 2**17
    shared[:] = 7
    release_pages(shared[:, ::2].transpose(axes))  # gaps belong to others
    assert (shared == 7).all()


@pytest.mark.parametrize("n_bytes", [0, 1, 4095, 4096, 4097, 8191])
def test_releasing_leaves_neighbours_alone(n_bytes: int) -> None:
    memory = np.full(5 * 4096, 7, np.uint8)
    for start in (0, 1, 4000, 4096):
        release_pages(memory[start : start + n_bytes])
        assert (memory[:start] == 7).all() and (memory[start + n_bytes :] == 7).all()
        memory[:] = 7
    release_pages(memory[::2])
    assert (memory == 7).all()
