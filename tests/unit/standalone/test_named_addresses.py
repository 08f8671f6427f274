"""Several hosts that serve one directory cannot agree on a free choice, so every Service names its addresses."""

import pytest

from speaker.errors import InvalidManifests
from speaker.standalone.manifests import load

SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: {%s}
spec: {type: LoadBalancer, ports: [{port: 80}], %s}
"""
ADDRESSES = "eip-speaker.io/addresses: "


def problems(directory, annotations="", spec="", named=True):
    (directory / "a.yaml").write_text(SERVICE % (annotations, spec))
    try:
        load(directory, named=named)
    except InvalidManifests as error:
        return [str(problem).replace(f"{directory}/", "") for problem in error.problems]
    return []


def complaint(value, families):
    where = "a.yaml:5: Service/web: metadata.annotations[eip-speaker.io/addresses]"
    shown = f"{value}: " if value else ""
    rule = f"must name {families}: several hosts serve this Service, and each would choose its own"
    return [f"{where}: {shown}{rule}"]


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        (ADDRESSES + "192.0.2.1", ""),
        ("", "loadBalancerIP: 192.0.2.1"),
        ("", 'loadBalancerIP: "2001:db8::1"'),
        (ADDRESSES + "'192.0.2.1, 2001:db8::1'", "ipFamilyPolicy: RequireDualStack"),
        (ADDRESSES + "'2001:db8::1, 192.0.2.1'", "ipFamilyPolicy: PreferDualStack"),
        ("", "loadBalancerClass: example.com/other"),
    ],
)
def test_a_service_that_names_an_address_of_each_family_or_is_not_ours_is_fine(tmp_path, annotations, spec):
    assert problems(tmp_path, annotations, spec) == []


@pytest.mark.parametrize(
    ("annotations", "spec", "said"),
    [
        ("", "", complaint("", "an IPv4 address")),
        ("", "ipFamilies: [IPv6]", complaint("", "an IPv6 address")),
        ("eip-speaker.io/pool: lan", "", complaint("", "an IPv4 address")),
        ("", "ipFamilyPolicy: PreferDualStack", complaint("", "an IPv4 address and an IPv6 address")),
        ("", "ipFamilyPolicy: PreferDualStack, loadBalancerIP: 192.0.2.1", complaint("", "an IPv6 address")),
        (
            ADDRESSES + "'2001:db8::1'",
            "ipFamilyPolicy: RequireDualStack",
            complaint("'2001:db8::1'", "an IPv4 address"),
        ),
    ],
)
def test_a_service_that_leaves_an_address_to_be_chosen_is_refused_with_the_families_it_must_name(
    tmp_path, annotations, spec, said
):
    assert problems(tmp_path, annotations, spec) == said
    assert problems(tmp_path, annotations, spec, named=False) == []


def test_every_service_of_a_list_is_looked_at(tmp_path):
    item = "{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {type: LoadBalancer, ports: [{port: 80}]}}"
    (tmp_path / "a.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n- {item % 'one'}\n- {item % 'two'}\n")
    with pytest.raises(InvalidManifests) as refused:
        load(tmp_path, named=True)
    assert [(problem.subject, problem.place.line) for problem in refused.value.problems] == [
        ("Service/one", 4),
        ("Service/two", 5),
    ]
