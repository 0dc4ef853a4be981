"""The manifests that the page shows: they parse, and their pods find in the environment what join reads."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from redist.cli.main import make_parser
from redist.launch.started import find_started
from tests.docs.documents import DOCUMENTS
from tests.launch.test_joining import set_only

(PAGE,) = (page for page in DOCUMENTS if page.name == "docs/how-to/launchers.md")
MANIFESTS: list[dict[str, Any]] = [
    one for block in PAGE.blocks("yaml") for one in yaml.safe_load_all(block)
]
BY_KIND = {one["kind"]: one for one in MANIFESTS}


def pods_of(kind: str) -> tuple[dict[str, Any], dict[str, Any], str, str]:
    """The Job and the pods of a manifest, the beginning of their names, and the name of their Service."""
    found = BY_KIND[kind]
    name = found["metadata"]["name"]
    if kind == "Job":
        job = found["spec"]
        return job, job["template"]["spec"], f"{name}-", job["template"]["spec"]["subdomain"]
    (replicated,) = found["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1 and found["spec"]["network"]["enableDNSHostnames"]
    job = replicated["template"]["spec"]
    return job, job["template"]["spec"], f"{name}-{replicated['name']}-0-", name


def test_the_page_shows_a_service_an_indexed_job_and_a_job_set() -> None:
    assert [(one["apiVersion"], one["kind"]) for one in MANIFESTS] == [
        ("v1", "Service"),
        ("batch/v1", "Job"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ]


def test_the_service_leads_to_the_pods_before_they_are_ready() -> None:
    service, (_, pods, _, subdomain) = BY_KIND["Service"], pods_of("Job")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["metadata"]["name"] == subdomain == pods["subdomain"]
    assert service["spec"]["selector"] == {"job-name": BY_KIND["Job"]["metadata"]["name"]}


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_every_pod_is_a_rank_and_meets_in_pod_0(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job, pods, begin, service = pods_of(kind)
    assert job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"]
    assert job["backoffLimit"] == 0 and pods["restartPolicy"] == "Never"
    (container,) = pods["containers"]
    own = {one["name"]: one.get("value") for one in container["env"]}
    assert all(value is None or isinstance(value, str) for value in own.values()), (
        "as Kubernetes has it"
    )
    secret = {one["name"]: one["valueFrom"] for one in container["env"] if "valueFrom" in one}
    assert set(secret) == {"REDIST_JOIN_TOKEN"}
    assert set(secret["REDIST_JOIN_TOKEN"]["secretKeyRef"]) == {"name", "key"}
    for index in range(job["completions"]):
        env = {name: value if value is not None else "secret" for name, value in own.items()}
        set_only(monkeypatch, {**env, "JOB_COMPLETION_INDEX": str(index)})
        started = find_started(None, None, None, None, 1.0)
        assert (started.rank, started.size) == (index, job["completions"])
        assert started.at.doors[0] == (f"{begin}0.{service}", 29500)  # type: ignore[union-attr]
        assert started.at.token == "secret"  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_the_command_of_a_pod_is_one_of_ours(kind: str) -> None:
    (container,) = pods_of(kind)[1]["containers"]
    assert container["command"][0] == "redist"
    args = make_parser().parse_args(container["command"][1:])
    assert args.command == "join" and args.timeout == 300 and args.program == ["examples/heat.py"]


def test_the_secret_is_made_as_the_page_says() -> None:
    made = re.search(r"kubectl create secret generic (\w+) --from-literal=(\w+)=", PAGE.text)
    (container,) = pods_of("Job")[1]["containers"]
    wanted = container["env"][-1]["valueFrom"]["secretKeyRef"]
    assert made is not None and wanted == {"name": made[1], "key": made[2]}


def test_without_an_address_pod_0_is_found_by_the_name_of_this_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "heat-12.heat.default.svc.cluster.local")
    set_only(monkeypatch, {"JOB_COMPLETION_INDEX": "12", "WORLD_SIZE": "16"})
    started = find_started(None, None, None, "t", 1.0)
    assert started.at.doors[0] == ("heat-0.heat.default.svc.cluster.local", 29500)  # type: ignore[union-attr]
