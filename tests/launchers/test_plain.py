"""Plain processes, here and on two emulated hosts: the examples as they are."""

from __future__ import annotations

import subprocess

import pytest

from tests.cluster.hosts import make_cluster, why_no_cluster
from tests.cluster.launch import TCP
from tests.launch.plain import ROOT, free_port, run, variables
from tests.launchers.expected import COUNTS, JOIN, LIMIT_S, MODULE, must_equal_mpirun, results_in
from tests.programs.launch import alone, default_mpi, on_cluster, one_worker

pytestmark = [
    one_worker,
    pytest.mark.skipif(default_mpi() is None, reason="needs mpirun"),
    pytest.mark.slow("every example once more"),
]
PROGRAM = ("-m", *JOIN)


FOUR = pytest.mark.slow("two hosts of two have as many; make launchers runs it", full=True)


@pytest.mark.parametrize("size", [pytest.param(n, marks=FOUR if n == 4 else ()) for n in COUNTS])
def test_examples_print_what_they_print_under_mpirun(size: int) -> None:
    with alone():
        done = run(PROGRAM, variables(size), limit_s=LIMIT_S)
    assert [one.status for one in done] == [0] * size, done
    must_equal_mpirun(results_in(done[0].output), size)


@pytest.mark.skipif(bool(why_no_cluster()), reason=why_no_cluster() or "none")
def test_examples_on_two_hosts_of_two_print_the_same() -> None:
    with make_cluster(2) as cluster, alone():
        address = cluster.addresses[0]
        envs = [{**env, **TCP} for env in variables(4, address, free_port())]
        hosts = [
            ["ip", "netns", "exec", f"{cluster.prefix}{rank // 2}", "unshare", "--uts", "sh", "-c",
             f'hostname host{rank // 2}; exec "$@"', "sh"]
            for rank in range(4)
        ]  # fmt: skip
        done = run(PROGRAM, envs, hosts, limit_s=LIMIT_S)
        mpi = default_mpi()
        assert mpi is not None
        on_hosts = on_cluster(cluster, 2, mpi)
        command = on_hosts.launcher.command(4, ["-m", MODULE])
        want = subprocess.run(
            command, cwd=ROOT, env={**envs[0], **on_hosts.variables}, capture_output=True, text=True,
            timeout=LIMIT_S,
        )  # fmt: skip
    assert [one.status for one in done] == [0] * 4, done
    assert want.returncode == 0, want.stderr
    must_equal_mpirun(results_in(done[0].output), 4, results_in(want.stdout))
