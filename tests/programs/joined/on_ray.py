"""``python -m tests.programs.joined.on_ray 4``: the examples in actors of Ray, in a placement group."""

from __future__ import annotations

import json
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
class Rank:
    """One rank of the job."""

    def join(self, rank: int, size: int) -> tuple[int, int]:
        """Join the others; who this is."""
        import redist

        comm = redist.join(rank, size)
        return comm.rank, comm.size

    def run(self) -> dict[str, str]:
        """Run the examples."""
        from tests.programs.joined.examples import run_all

        return run_all()


def main(size: int) -> None:
    """Start a Ray of this machine, and so many ranks in it."""
    ray.init(num_cpus=size, include_dashboard=False, log_to_driver=False)
    group = placement_group([{"CPU": 1}] * size, strategy="PACK")
    where = [PlacementGroupSchedulingStrategy(group, k) for k in range(size)]
    ranks = [Rank.options(scheduling_strategy=one).remote() for one in where]  # type: ignore[attr-defined]
    joined = ray.get([one.join.remote(k, size) for k, one in enumerate(ranks)])
    assert joined == [(k, size) for k in range(size)], joined
    print("PRINTED", json.dumps(ray.get([one.run.remote() for one in ranks])), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
