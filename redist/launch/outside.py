"""The environment of processes that this one starts, so that they take no part in its MPI job."""

from __future__ import annotations

import os
from pathlib import Path

# An MPI job inside of another, or of a process that has used MPI, must not take itself for a part.
# What a user sets for Open MPI stays: OMPI_MCA_btl and the like.
INNER = (
    *("PMI_", "PMIX_", "HYDI_", "PRTE_", "ORTE_"),
    *("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_APP_CTX_", "OMPI_FIRST_RANKS", "OMPI_ARGV"),
    *("OMPI_NUM_APP_CTX", "OMPI_COMMAND", "OMPI_FILE_LOCATION", "OMPI_MCA_ess", "OMPI_MCA_pmix"),
    *("OMPI_MCA_orte_ess", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri"),
    *("OMPI_MCA_orte_precondition", "OMPI_MCA_orte_num_", "OMPI_MCA_orte_app_num"),
    *("OMPI_MCA_orte_top_session_dir", "OMPI_MCA_orte_jobfam", "OMPI_MCA_orte_launch"),
    *("OMPI_MCA_orte_tag_output", "OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_initial_wdir"),
    *("OMPI_MCA_orte_nodes", "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "OMPI_MCA_mpi_oversubscribe"),
)


def environment() -> dict[str, str]:
    """**Local.** Copy this process's environment for one that starts MPI anew and finds this redist."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(INNER)}
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths)}
