"""``speaker doctor --cluster`` lists the Services of a real API: who else has an EIP forwarded is named."""

import json
from collections.abc import Callable, Iterator

import pytest
from real_api import RealApi

from speaker.cli import main

pytestmark = pytest.mark.apiserver

AGENTS, EIP = "eip-speaker-agents", "192.0.2.7"
VICTIM, THIEF = "default/victim", "default/thief"


@pytest.fixture
def victim(admin: Callable[..., str]) -> Iterator[None]:
    """It has the EIP from our controller, and an agent is there."""
    labels = {"app.kubernetes.io/name": "eip-speaker", "app.kubernetes.io/component": "agent"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": AGENTS, "labels": labels}}
    containers = [{"name": "agent", "image": "eip-speaker"}]
    admin("apply", "-f", "-", stdin=json.dumps({**pod, "spec": {"nodeName": "node-a", "containers": containers}}))
    spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": [{"port": 80}]}
    made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "victim"}, "spec": spec}
    admin("apply", "-f", "-", stdin=json.dumps(made))
    when = "2026-11-21T12:00:00Z"
    condition = {
        "type": "eip-speaker.io/Assigned",
        "status": "True",
        "reason": "Assigned",
        "message": "",
        "lastTransitionTime": when,
    }
    status = {"status": {"loadBalancer": {"ingress": [{"ip": EIP}]}, "conditions": [condition]}}
    admin("patch", "service", "victim", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    yield
    admin("delete", "pod", "agent", f"--namespace={AGENTS}", "--force", "--grace-period=0")


@pytest.fixture
def looks_at_agents(admin: Callable[..., str]) -> Iterator[str]:
    """A user who may see the agents, and no Service."""
    admin("create", "role", "looks", f"--namespace={AGENTS}", "--verb=get,list", "--resource=pods,pods/proxy")
    admin("create", "rolebinding", "looks", f"--namespace={AGENTS}", "--role=looks", "--group=strangers")
    yield "nobody"
    admin("delete", "role,rolebinding", "looks", f"--namespace={AGENTS}")


@pytest.fixture
def doctor(api_server: RealApi, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """All that it prints, in one line. The one agent that there is does not answer."""

    def asked(user: str = "admin") -> str:
        main(["doctor", "--cluster", "--all", "--kubeconfig", str(api_server.kubeconfig(user))])
        return " ".join(capsys.readouterr().out.split())

    return asked


def thief(admin: Callable[..., str], **spec: object) -> None:
    made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "thief"}}
    admin("apply", "-f", "-", stdin=json.dumps({**made, "spec": {"ports": [{"port": 80}], **spec}}))


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "LoadBalancer"])
def test_a_service_of_any_type_whose_external_ips_have_an_eip_is_found(kind, victim, admin, doctor):
    thief(admin, type=kind, externalIPs=[EIP])
    said = doctor()
    assert f"Service {THIEF} lists {EIP}, the EIP of {VICTIM}, in spec.externalIPs" in said
    assert "DenyServiceExternalIPs" in said


def test_a_status_that_somebody_else_wrote_is_found(victim, admin, doctor):
    thief(admin, type="LoadBalancer", loadBalancerClass="example.com/other")
    status = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": EIP}]}}})
    admin("patch", "service", "thief", "--subresource=status", "--type=merge", "-p", status)
    assert f"the status of Service {THIEF} has {EIP}, the EIP of {VICTIM}" in doctor()


def test_where_nobody_lists_the_eip_nothing_is_found(victim, admin, doctor):
    thief(admin, externalIPs=["203.0.113.1"])
    assert EIP not in doctor()


def test_who_may_not_list_services_is_told_that_nothing_can_be_said_of_them(victim, admin, looks_at_agents, doctor):
    thief(admin, externalIPs=[EIP])
    said = doctor(looks_at_agents)
    assert "Services of the API" in said
    assert THIEF not in said
