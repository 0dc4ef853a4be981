"""CUDA loops of clustering as plain C++: built by the host's compiler, threads one after another."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SHIM = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#define ON_HOST
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))
#define __syncthreads()
#define __threadfence()
struct Dim { unsigned x; };
static Dim blockIdx, gridDim, blockDim;
static unsigned char *ROOM;
#define N_THREADS ((int)blockDim.x)
#define EACH_THREAD for (int tid = 0; tid < N_THREADS; tid++)
static inline float fused(float a, float b, float c) { return std::fmaf(a, b, c); }
static inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
template <class T> static T atomicAdd(T *at, T by) { T was = *at; *at += by; return was; }
template <class T> static T atomicMin(T *at, T by) { T was = *at; *at = by < was ? by : was; return was; }
template <class T> static T atomicMax(T *at, T by) { T was = *at; *at = was < by ? by : was; return was; }
template <class T> static T atomicCAS(T *at, T old, T by)
{
    T was = *at;
    *at = was == old ? by : was;
    return was;
}
template <class T> static T __ldg(const T *at) { return *at; }
"""
LAUNCH = r"""
template <class T> static T word(const uint64_t *words)
{
    T out;
    static_assert(sizeof(T) % 8 == 0, "arguments have eight bytes, or several times as many");
    memcpy(&out, words, sizeof(T));
    return out;
}
template <class... A, int... I>
static void spread(void (*loop)(A...), const uint64_t *words, std::integer_sequence<int, I...>)
{
    const size_t sizes[] = {0, sizeof(A) / 8 ...};
    size_t at[sizeof...(A) + 1];
    at[0] = 0;
    for (size_t k = 0; k < sizeof...(A); k++)
        at[k + 1] = at[k] + sizes[k + 1];
    loop(word<A>(words + at[I])...);
}
template <class... A>
static void launch(void (*loop)(A...), const uint64_t *words, unsigned blocks, unsigned threads,
                   uint64_t bytes)
{
    ROOM = new (std::align_val_t(16)) unsigned char[bytes + 1];
    memset(ROOM, 0xA5, bytes);
    gridDim.x = blocks;
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        spread(loop, words, std::make_integer_sequence<int, sizeof...(A)>());
    operator delete[](ROOM, std::align_val_t(16));
}
"""
BEFORE: list[Any] = [lambda: None]
"""Does what was put off before a loop."""
FOLDER = Path(tempfile.gettempdir()) / f"redist-loops-{os.getuid()}"


def build(source: str, options: tuple[str, ...], sanitized: bool = False) -> Path:
    """The library of a source, built once."""
    compiler = shutil.which("g++")
    assert compiler is not None, "needs a C++ compiler"
    plain = re.sub(r"__launch_bounds__\(\w+\)", "", source)
    names = re.findall(r'extern "C" __global__ void\s+(\w+)\s*\(', plain)
    runs = [
        f'extern "C" void run_{name}(const uint64_t *w, unsigned b, unsigned t, uint64_t s)'
        f"\n{{ launch({name}, w, b, t, s); }}"
        for name in names
    ]
    text = "\n".join(["#include <new>\n#include <utility>", SHIM, source, LAUNCH, *runs])
    flags = [one for one in options if one.startswith("-D")] + ["-std=c++17", "-O1", "-w"]
    flags += ["-ffp-contract=off"]
    if sanitized:
        flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    key = hashlib.sha256(" ".join([text, *flags]).encode()).hexdigest()[:24]
    FOLDER.mkdir(exist_ok=True)
    library = FOLDER / f"{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            code, made = Path(folder) / "loops.cpp", Path(folder) / "loops.so"
            code.write_text(text, encoding="utf-8")
            command = [compiler, *flags, "-shared", "-fPIC", "-o", str(made), str(code)]
            subprocess.run(command, check=True)
            made.replace(library)
    return library


class RawModule:
    """As CuPy's, on the host."""

    def __init__(self, code: str, options: tuple[str, ...]) -> None:
        self._library = ctypes.CDLL(str(build(code, options)))

    def get_function(self, name: str) -> Any:
        """A loop that is done when it was called."""
        return Loop(getattr(self._library, f"run_{name}"))


class Loop:
    """One loop; its arguments are arrays of the pretended GPU, numbers of eight bytes, and structs."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.max_dynamic_shared_size_bytes = 48 * 1024

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        """Run it, once all is done that was started before."""
        BEFORE[0]()
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        given = [b""]
        for one in args:
            if hasattr(one, "data") and hasattr(one.data, "ptr"):
                assert one.flags.c_contiguous
                given.append(np.uint64(one.data.ptr).tobytes())
            else:
                assert isinstance(one, (np.int64, np.float64, np.uintp, np.void)), type(one)
                given.append(one.tobytes())
        words = np.frombuffer(b"".join(given) or bytes(8), np.uint64)
        self._run(
            ctypes.c_void_p(words.ctypes.data), ctypes.c_uint(grid[0]), ctypes.c_uint(block[0]),
            ctypes.c_uint64(shared_mem),
        )  # fmt: skip
