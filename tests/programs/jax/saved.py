"""jax.Arrays on several devices of a process, saved and loaded: ``python -m tests.programs.jax.saved``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import redist


def main() -> None:
    """Raise unless everything comes back."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("dp", "tp"))
    x = jnp.arange(48, dtype=jnp.float32).reshape(8, 6)
    h = jnp.arange(16).astype(jnp.bfloat16).reshape(4, 4)
    given = {"x": (x, ("tp", None)), "h": (h, ("dp", "tp")), "r": (2 * x, ())}
    arrays = {
        name: jax.device_put(one, NamedSharding(mesh, PartitionSpec(*cuts)))
        for name, (one, cuts) in given.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.safetensors"
        redist.save(path, {"model": arrays})
        found = redist.load(path, dtype="f32")
    for name, (one, _) in given.items():
        assert np.array_equal(found[f"model.{name}"].gather(), np.asarray(one).astype("f4")), name
    print("saved and loaded")


if __name__ == "__main__":
    main()
