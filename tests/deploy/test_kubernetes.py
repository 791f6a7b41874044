"""The manifests of Kubernetes: valid by its own schemas, and in agreement with the server and the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.dockerfile import instructions, words
from trunkline.cli.commands.run import command
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.supervisor import _KILL_AFTER

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "kubernetes" / "books.yaml"
MANIFESTS: dict[str, Any] = {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text(encoding="utf-8"))}
#: From the first release that can pause before a stop without a shell in the image.
RELEASES = ("1.30", "1.34", "1.37")


@pytest.fixture
def pod() -> Any:
    return MANIFESTS["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: Any) -> Any:
    (found,) = pod["containers"]
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_the_manifests_are_valid(release: str) -> None:
    for manifest in MANIFESTS.values():
        kubernetes_validate.validate(manifest, release, strict=True)


def test_an_unknown_field_would_be_noticed() -> None:
    wrong = {**MANIFESTS["Service"], "spec": {**MANIFESTS["Service"]["spec"], "sessionAfinity": "None"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, RELEASES[0], strict=True)


def test_everything_selects_the_same_pods() -> None:
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert MANIFESTS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "books"
    assert "replicas" not in MANIFESTS["Deployment"]["spec"], "the autoscaler sets them"


def test_requests_have_the_time_to_finish(pod: Any, container: Any) -> None:
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= pause + Limits().drain_seconds + _KILL_AFTER


def test_the_probes_ask_the_metrics_listener(container: Any) -> None:
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert asked == {
        "startup": {"path": "/healthz", "port": "metrics"},
        "liveness": {"path": "/healthz", "port": "metrics"},
        "readiness": {"path": "/readyz", "port": "metrics"},
    }
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"http": 8000, "metrics": 9464}


def test_the_key_comes_from_a_secret_and_no_value_is_in_the_file(container: Any) -> None:
    assert container["envFrom"] == [{"secretRef": {"name": "books"}}]
    assert "env" not in container
    assert "Secret" not in MANIFESTS
    for name in ("TRUNKLINE_STATE_KEY", "TRUNKLINE_STORE", "BOOKS_TOKEN"):
        assert f"--from-literal={name}=" in FILE.read_text(encoding="utf-8")


def test_the_arguments_are_options_of_the_command(container: Any) -> None:
    context = command.make_context("run", ["server.py", *container["args"]])
    assert (context.params["metrics"], context.params["allowed_host"]) == ("0.0.0.0:9464", ("mcp.example.com",))
    assert context.params["address"].port == 8000


def test_the_pod_may_do_little(pod: Any, container: Any) -> None:
    (user,) = [words(each.value)[0] for each in instructions(ROOT / "deploy" / "Dockerfile") if each.name == "USER"]
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == user
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
