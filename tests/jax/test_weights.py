"""Weights of jax.Arrays: types from shardings."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    find_spec("jax") is None, reason="needs jax: make frameworks has an environment with it"
)
PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

import redist

mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
put = lambda shape, spec: jax.device_put(jnp.zeros(shape, "bfloat16"), NamedSharding(mesh, spec))
state = {"layer": {"kernel": put((8, 6), P("x", "y")), "bias": put((6,), P())}}
state["later"] = jax.ShapeDtypeStruct((4, 4), "float32", sharding=NamedSharding(mesh, P(None, "x")))
found = redist.Weights.of(state, names="*.kernel[i, o] = *.weight[o, i]")
print([f"{name}: {t} on {t.mesh}" for name, t in found.types.items()], found.named()["layer.weight"][0])
"""


def test_types_of_jax_arrays() -> None:
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    wanted = [
        "later: f32[4, 4{x}] on x=2,y=2",
        "layer.bias: bf16[6] on x=2,y=2",
        "layer.kernel: bf16[8{x}, 6{y}] on x=2,y=2",
    ]
    assert done.stdout.strip() == f"{wanted} (6, 8)", done.stdout + done.stderr[-2000:]
