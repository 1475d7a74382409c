"""The files of `deploy/`: a container that is built and run, and configurations that are checked.

The base image is made of Debian packages, and the build installs wheels made here: neither a
registry nor a package index is used inside the container.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.service import Running, wait_until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = "localhost/capsar-test-base"
IMAGE = "localhost/capsar-test"
MIRROR = "http://deb.debian.org/debian"
# What podman needs on a machine without systemd, which its health checks use.
PODMAN = ("podman", "--runtime=runc", "--cgroup-manager=cgroupfs")
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=512:512", "--no-healthcheck")


def run(*words: object) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("image")
    packages = "--include=python3,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", packages, "bookworm", folder / "root", MIRROR)
    run("tar", "-C", folder / "root", "-cf", folder / "root.tar", ".")
    run("podman", "import", folder / "root.tar", BASE)
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    wheels = [sys.executable, "-m", "pip", "wheel", "-q", "-w", folder / "wheels"]
    run(*wheels, "-c", ROOT / "constraints.txt", f"{ROOT}[serve]")
    run(*wheels, *backend)
    config = folder / "pip.conf"
    config.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    build = ["podman", "build", "--isolation=chroot", f"--build-arg=BASE={BASE}", "--tag", IMAGE]
    volumes = [f"--volume={folder / 'wheels'}:/wheels:ro", f"--volume={config}:/etc/pip.conf:ro"]
    run(*build, *volumes, "--format=docker", "--file", DEPLOY / "Containerfile", ROOT)
    return IMAGE


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[tuple[str, Running]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    options += [
        "--network=host",
        f"--env=CAPSAR_SERVE_PORT={port}",
        "--env=CAPSAR_SERVE_MODEL=fast",
    ]
    name = run(*PODMAN, "run", "--detach", *LIMITS, *options, image).strip()
    service = Running(subprocess.Popen(["podman", "wait", name]), Path("none"))
    service.port = port
    try:
        wait_until(service.is_ready, 60)
        yield name, service
    finally:
        subprocess.run(["podman", "rm", "--force", name], capture_output=True, check=False)
        service.process.wait(30)


def test_alerts_use_metrics_of_the_service(container: tuple[str, Running]) -> None:
    served = container[1].request("/metrics")[2].decode()
    named = set(re.findall(r"capsar_\w+", (DEPLOY / "alerts.yaml").read_text()))
    assert {name for name in named if name not in served} == set()


def test_health_check_of_the_image(image: str, container: tuple[str, Running]) -> None:
    check = json.loads(run("podman", "image", "inspect", image))[0]["Healthcheck"]["Test"]
    command = [word.replace("8000", str(container[1].port)) for word in check[1:]]
    run("podman", "exec", container[0], *command)
    wrong = [word.replace("healthz", "nothing") for word in command]
    assert subprocess.run(["podman", "exec", container[0], *wrong], check=False).returncode != 0


def test_container_serves_without_rights_and_stops(container: tuple[str, Running]) -> None:
    name, service = container
    content = {"text": "Great food, terrible service."}
    status, _, body = service.request("/v1/analyze", content)
    assert status == 200
    assert [aspect["text"] for aspect in json.loads(body)["aspects"]] == ["food", "service"]
    assert run("podman", "exec", name, "id", "-u").strip() == "10001"
    denied = subprocess.run(["podman", "exec", name, "touch", "/opt/x"], check=False)
    assert denied.returncode != 0
    size = int(run("podman", "image", "inspect", IMAGE, "--format", "{{.Size}}"))
    assert size < 800e6
    start = time.monotonic()
    run("podman", "stop", "--time", "30", name)
    assert time.monotonic() - start < 15


def test_kubernetes_manifests_are_valid() -> None:
    import kubernetes_validate
    import yaml

    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Deployment", "Service"]
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_alert_rules_are_valid() -> None:
    assert "5 rules found" in run("promtool", "check", "rules", DEPLOY / "alerts.yaml")


SERVED = 'capsar_requests_total{instance="a", route="/v1/analyze", status="%d"}'


def check_alert(folder: Path, name: str, summary: str, series: dict[str, str], time: str) -> None:
    alert = {
        "exp_labels": {"severity": "warning", "instance": "a"},
        "exp_annotations": {"summary": summary},
    }
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": time, "alertname": name, "exp_alerts": [alert]}],
    }
    path = folder / "test.yaml"  # YAML contains JSON
    path.write_text(json.dumps({"rule_files": [str(DEPLOY / "alerts.yaml")], "tests": [case]}))
    run("promtool", "test", "rules", path)


def test_overload_raises_an_alert(tmp_path: Path) -> None:
    """The two metrics of its rule have different labels."""
    series = {
        'capsar_shed_total{instance="a"}': "0+60x30",
        SERVED % 503: "0+60x30",
        SERVED % 200: "0+60x30",
    }
    summary = "a rejects 50% of its requests: add replicas."
    check_alert(tmp_path, "CapsarOverloaded", summary, series, "20m")


@pytest.mark.parametrize(
    ("status", "name", "summary"),
    [
        (500, "CapsarErrors", "a has internal errors: see its log."),
        (504, "CapsarDeadlines", "a does not finish requests in time."),
    ],
)
def test_a_short_burst_of_errors_raises_an_alert(
    tmp_path: Path, status: int, name: str, summary: str
) -> None:
    check_alert(tmp_path, name, summary, {SERVED % status: "0x5 1000x30"}, "12m")
