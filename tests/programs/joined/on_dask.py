"""``python -m tests.programs.joined.on_dask 4``: the examples in the workers of a Dask cluster."""

from __future__ import annotations

import json
import sys

from distributed import Client, LocalCluster


def join() -> int:
    """Make this worker a rank."""
    import redist

    return int(redist.join().rank)


def run() -> dict[str, str]:
    """Run the examples."""
    from tests.programs.joined.examples import run_all

    return run_all()


def main(size: int) -> None:
    """Start so many workers on this machine, and join them."""
    with (
        LocalCluster(n_workers=size, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        ranks = client.run(join)
        assert sorted(ranks.values()) == list(range(size)), ranks
        found = client.run(run)
        told = [found[address] for address in sorted(ranks, key=lambda one: ranks[one])]
        print("PRINTED", json.dumps(told), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
