"""The client against a real API server: who it is, what it is told when it may not, and what its writes do."""

import json
import logging
import subprocess

import pytest

from speaker.cluster.access import Access
from speaker.errors import ApiRefused, ApiUnreachable, EdgeError, SettingError

pytestmark = pytest.mark.apiserver

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def strange_certificate(tmp_path_factory) -> str:
    directory = tmp_path_factory.mktemp("stranger")
    request = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=stranger")
    files = ("-keyout", str(directory / "key"), "-out", str(directory / "crt"))
    subprocess.run([*request, *files], check=True, capture_output=True)
    return (directory / "crt").read_text()


async def who(client):
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return json.loads(answer)["status"]["userInfo"]["username"]


async def test_a_kubeconfig_says_who_we_are(api_server, connect):
    assert await who(await connect(Access(api_server.kubeconfig()))) == "admin"


async def test_a_pod_is_its_service_account(api_server, connect, service_account, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api_server.port))
    client = await connect(Access(service_account=service_account))
    assert await who(client) == "system:serviceaccount:default:speaker"


async def test_an_endpoint_given_directly_needs_no_service_address(api_server, connect, service_account, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    client = await connect(Access(service_account=service_account, server=api_server.url))
    assert await who(client) == "system:serviceaccount:default:speaker"


async def test_a_token_that_the_api_no_longer_knows_is_read_again(api_server, connect, service_account):
    token = (service_account / "token").read_text()
    (service_account / "token").write_text("expired")
    client = await connect(Access(service_account=service_account, server=api_server.url))
    with pytest.raises(ApiRefused) as raised:
        await who(client)
    assert raised.value.code == 401
    (service_account / "token").write_text(token + "\n")
    assert await who(client) == "system:serviceaccount:default:speaker"


async def test_what_a_role_does_not_allow_is_refused(api_server, connect):
    client = await connect(Access(api_server.kubeconfig("nobody")))
    with pytest.raises(ApiRefused) as raised:
        await client.get("/api/v1/services")
    assert (raised.value.code, raised.value.reason) == (403, "Forbidden")
    assert 'User "nobody" cannot list resource "services"' in str(raised.value)


async def test_a_server_whose_certificate_another_signed_is_not_spoken_to(
    api_server, connect, service_account, strange_certificate
):
    (service_account / "ca.crt").write_text(strange_certificate)
    client = await connect(Access(service_account=service_account, server=api_server.url))
    with pytest.raises(ApiUnreachable, match="certificate"):
        await who(client)


async def test_a_certificate_that_is_none_is_an_edge_error(api_server, connect, service_account):
    (service_account / "ca.crt").write_text("no certificate")
    with pytest.raises(EdgeError, match="certificates"):
        await connect(Access(service_account=service_account, server=api_server.url))


async def test_a_stale_write_is_refused(api_server, connect):
    client = await connect(Access(api_server.kubeconfig()))
    await client.create(MAPS, {"metadata": {"name": "stale"}, "data": {"a": "1", "b": "2"}})
    version = json.loads(await client.get(f"{MAPS}/stale"))["metadata"]["resourceVersion"]
    stamped = {"metadata": {"resourceVersion": version}, "data": {"a": None, "b": "3"}}
    assert json.loads(await client.patch(f"{MAPS}/stale", stamped))["data"] == {"b": "3"}
    with pytest.raises(ApiRefused) as raised:
        await client.patch(f"{MAPS}/stale", stamped)
    assert (raised.value.code, raised.value.reason) == (409, "Conflict")
    with pytest.raises(ApiRefused) as raised:
        await client.delete(f"{MAPS}/stale", {"preconditions": {"resourceVersion": version}})
    assert raised.value.code == 409
    await client.delete(f"{MAPS}/stale")


async def test_a_frozen_api_keeps_nobody_longer_than_it_may(api_server, connect):
    client = await connect(Access(api_server.kubeconfig()))
    api_server.freeze()
    try:
        with pytest.raises(ApiUnreachable, match="in time"):
            await client.get("/version", within=0.2)
    finally:
        api_server.thaw()


@pytest.mark.parametrize(
    "text", ["", "{}", "a: [", '{"current-context": "x", "contexts": []}', "clusters: 1", "\x00"], ids=repr
)
async def test_a_kubeconfig_that_cannot_work_is_a_setting_that_is_wrong(connect, tmp_path, text, caplog):
    caplog.set_level(logging.CRITICAL)
    (tmp_path / "config").write_text(text)
    with pytest.raises(SettingError, match="kubeconfig"):
        await connect(Access(tmp_path / "config"))


async def test_outside_a_cluster_a_kubeconfig_is_asked_for(connect, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingError, match="name a kubeconfig"):
        await connect(Access())


async def test_a_service_account_without_a_token_is_an_edge_error(connect, tmp_path):
    with pytest.raises(EdgeError, match="token"):
        await connect(Access(service_account=tmp_path, server="https://127.0.0.1:1"))


NOWHERE = "/api/v1/namespaces/nowhere/configmaps"
GONE = {"an object": (f"{MAPS}/nothing", True), "a namespace": (f"{NOWHERE}/nothing", True)}
UNKNOWN = {
    "a group that is not served": ("/apis/nobody.example/v1/things/x", False),
    "a version that is not": ("/apis/eip-speaker.io/v9/eips/x", False),
    "a kind that is not": ("/apis/eip-speaker.io/v1alpha1/nothings/x", False),
}


@pytest.mark.parametrize("method", ["get", "patch", "delete"])
@pytest.mark.parametrize("case", GONE | UNKNOWN)
async def test_that_an_object_is_not_there_is_told_from_a_kind_that_is_not_served(
    case, method, api_server, admin, connect
):
    path, is_said = (GONE | UNKNOWN)[case]
    client = await connect(Access(api_server.kubeconfig()))
    asked = {"get": (path,), "patch": (path, {"metadata": {"labels": {"a": "b"}}}), "delete": (path, {})}[method]
    with pytest.raises(ApiRefused) as raised:
        await getattr(client, method)(*asked)
    assert (raised.value.code, raised.value.no_such_object) == (404, is_said)
