"""Pools that stand in something else: values of Helm, policies, manifests in a ConfigMap. None is passed over."""

import re

import pytest
from conversions import converted
from hypothesis import given
from hypothesis import strategies as st

CONFIG = """
address-pools:
- name: lan
  protocol: layer2
  addresses: [192.0.2.0/28]
""".strip()
OBJECTS = """
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: lan}
spec:
  addresses: [192.0.2.0/28]
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: l2}
""".strip()


def indented(text, by):
    return text.replace("\n", "\n" + " " * by)


VALUES = f"""
speaker: {{nodeSelector: {{edge: "true"}}}}
configInline:
  {indented(CONFIG, 2)}
"""
HOLDING = {
    "values of the chart": VALUES,
    "values of a chart of charts": f"metallb:{indented(VALUES, 2)}",
    "a release of Flux": f"""
apiVersion: helm.toolkit.fluxcd.io/v2beta1
kind: HelmRelease
metadata: {{name: metallb, namespace: lb}}
spec:
  chart: {{spec: {{chart: metallb, version: 0.12.1}}}}
  values:
    configInline:
      {indented(CONFIG, 6)}
""",
    "a chart of k3s": f"""
apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata: {{name: metallb, namespace: kube-system}}
spec:
  chart: metallb
  valuesContent: |-
    configInline:
      {indented(CONFIG, 6)}
""",
    "an application of Argo CD": f"""
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {{name: metallb}}
spec:
  source:
    chart: metallb
    helm:
      values: |
        configInline:
          {indented(CONFIG, 10)}
""",
    "an addon in the file of a whole cluster": f"""
kind: ClusterConfiguration
apiVersion: provisioner.example/v1
spec:
  addons:
  - {{name: dashboard}}
  - name: metallb
    values: |
      configInline:
        {indented(CONFIG, 8)}
""",
    "values in a ConfigMap": f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: overrides}}
data:
  values.yaml: |
    configInline:
      {indented(CONFIG, 6)}
""",
    "manifests in a ConfigMap": f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: addons}}
data:
  pool.yaml: |
    {indented(OBJECTS, 4)}
""",
    "manifests of a machine's configuration": f"""
cluster:
  inlineManifests:
  - name: lb
    contents: |
      {indented(OBJECTS, 6)}
""",
    "objects of a policy": f"""
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {{name: lb}}
spec:
  templates:
  - {indented(OBJECTS.partition("---")[0], 4)}
  - {indented(OBJECTS.partition("---")[2].strip(), 4)}
""",
}


@pytest.mark.parametrize("case", HOLDING)
def test_a_pool_inside_is_converted_and_the_rest_is_to_decide(case):
    text = HOLDING[case]
    found = converted(text)
    assert [each["spec"]["addresses"] for each in found.pools] == [["192.0.2.0/28"]]
    assert "only that is converted" in next(each.why for each in found.decisions)
    assert len(found.decisions) == 1
    lines = text.splitlines()
    [at] = [number for number, line in enumerate(lines, 1) if "192.0.2.0/28" in line]
    broken = converted(text.replace("192.0.2.0/28", "192.0.2.x"))
    assert [each.place.line for each in broken.decisions if each.value == "192.0.2.x"] == [at]


def test_the_text_of_the_config_map_alone_is_converted_whole():
    found = converted(CONFIG)
    assert [each["metadata"]["name"] for each in found.pools] == ["lan"]
    assert found.decisions == ()


@pytest.mark.parametrize(
    "text",
    [
        HOLDING["a chart of k3s"].replace("- name: lan", "- {{ .Values.pool }}"),
        "{apiVersion: a.example/v1, kind: HelmRelease, spec: {values: {serviceGroup: {v4pool: {pool: a}}}}}",
        "{apiVersion: a.example/v1, kind: HelmRelease, spec: {values: {ipAddressPools: [{name: a}]}}}",
        "{apiVersion: a.example/v1, kind: HelmRelease, spec: {values: {cm: {data: {range-global: a}}}}}",
        "{apiVersion: a.example/v1, kind: A, spec: {manifest: 'apiVersion: metallb.io/v1beta1, kind: ['}}",
    ],
)
def test_what_cannot_be_read_inside_is_told(text):
    [only] = converted(text).listed
    assert "seems to hold pools of a load balancer" in only.why
    assert only.do


@pytest.mark.parametrize(
    ("text", "decided"),
    [
        ("resources: [pool.yaml, l2.yml, service.json]", False),
        ("resources: [../base]", True),
        ("resources: [https://example.com/metallb.yaml]", True),
        ("resources: [pool.yaml]\nnamespace: web", True),
        ("resources: [pool.yaml]\npatches: [{path: narrower.yaml}]", True),
        (f"patches:\n- patch: |\n    {indented(OBJECTS, 4)}", True),
        ("configMapGenerator: [{name: config, files: [config]}]", True),
    ],
)
def test_what_kustomize_would_change_is_told_and_never_taken_for_an_object(text, decided):
    found = converted(f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{text}\n")
    assert found.pools == ()
    assert bool(found.decisions) is decided


@pytest.mark.parametrize(("text", "decided"), [("path: ./lb", False), ("patches: [{patch: x}]", True)])
def test_what_flux_would_change_is_told(text, decided):
    found = converted(f"apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nspec: {{{text}}}\n")
    assert bool(found.decisions) is decided


@pytest.mark.parametrize(
    ("image", "decided"),
    [
        ("ghcr.io/kube-vip/kube-vip:v1.0.0", True),
        ("plndr/kube-vip", True),
        ("registry.example/kube-vip@sha256:0", True),
        ("ghcr.io/kube-vip/kube-vip-cloud-provider:v0.0.12", False),
        ("registry.example/web", False),
    ],
)
def test_the_pod_that_holds_the_control_planes_address_is_told(image, decided):
    pod = f"{{containers: [{{name: c, image: '{image}', env: [{{name: address, value: 192.0.2.9}}]}}]}}"
    for spec in (f"kind: Pod, spec: {pod}", f"kind: DaemonSet, spec: {{template: {{spec: {pod}}}}}"):
        found = converted(f"{{apiVersion: v1, metadata: {{name: v}}, {spec}}}")
        assert ["speaker control-plane" in each.do for each in found.listed] == [decided]


def test_what_makes_a_service_that_asks_another_balancer_is_told():
    annotations = "{metallb.universe.tf/loadBalancerIPs: 192.0.2.5, metallb.universe.tf/allow-shared-ip: web}"
    values = f"{{service: {{type: LoadBalancer, annotations: {annotations}}}}}"
    release = (
        "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: ingress}, spec: {values: %s}}"
    )
    [only] = converted(release % values).decisions
    assert "metallb.universe.tf/loadBalancerIPs, metallb.universe.tf/allow-shared-ip" in only.why
    assert only.do == "write eip-speaker.io/addresses, eip-speaker.io/share into it"


def test_the_operator_of_metallb_may_restrict_nodes():
    text = "{apiVersion: metallb.io/v1beta1, kind: MetalLB, metadata: {name: metallb}, spec: {%s}}"
    assert [each.do for each in converted(text % "nodeSelector: {a: b}").listed] == ["run the agents on the same nodes"]
    assert [each.do for each in converted(text % "logLevel: debug").listed] == [""]


def test_definitions_of_a_balancers_kinds_hold_no_pools():
    names = (
        "{group: metallb.io, names: {kind: IPAddressPool}, versions: [{name: v1beta1, schema: 'metallb.io/v1beta1'}]}"
    )
    found = converted(f"{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {names}}}")
    assert found.decisions == ()


@given(st.sampled_from([*HOLDING]), st.data())
def test_whatever_is_cut_from_such_a_file_is_read_or_told(case, data):
    lines = HOLDING[case].splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines)))
    cut = "".join(lines[:at] + lines[at + data.draw(st.integers(1, 3)) :])
    try:
        found = converted(cut)
    except AssertionError:  # is no YAML
        return
    holds = re.search(r"address-pools|metallb\.io/v", cut) and re.search(r"192\.0\.2\.0/28", cut)
    assert found.pools or found.decisions or not holds
