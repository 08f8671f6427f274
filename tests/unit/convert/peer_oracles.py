"""What peers give to a Service, enumerated address by address from their documents as their documentation has it.

Written apart from ``speaker.convert``: plain data, ``ipaddress`` and loops.
"""

from dataclasses import dataclass, field
from ipaddress import collapse_addresses, ip_address, ip_network

import yaml


@dataclass(frozen=True)
class Probe:
    """A Service that asks for any address, or for any of one pool."""

    namespace: str = "default"
    namespace_labels: dict = field(default_factory=dict)
    labels: dict = field(default_factory=dict)
    pool: str | None = None

    @property
    def pseudo(self):
        here = {"io.kubernetes.service.namespace": self.namespace, "io.kubernetes.service.name": "probe"}
        return {**self.labels, **here}


def each(text):
    if "-" in text:
        first, last = (ip_address(part.strip()) for part in text.split("-"))
        kind = type(first)
        return [kind(number) for number in range(int(first), int(last) + 1)]
    return list(ip_network(text, strict=False))


def matches(selector, labels):
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or []:
        key, values = rule["key"], rule.get("values", [])
        if rule["operator"] == "In" and labels.get(key) not in values:
            return False
        if rule["operator"] == "NotIn" and labels.get(key) in values:
            return False
        if rule["operator"] == "Exists" and key not in labels:
            return False
        if rule["operator"] == "DoesNotExist" and key in labels:
            return False
    return True


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def ends_badly(address):
    return address.version == 4 and int(address) % 256 in (0, 255)


def metallb(documents, probe):
    found = set()
    for pool in of_kind(documents, "IPAddressPool"):
        name, labels, spec = pool["metadata"]["name"], pool["metadata"].get("labels", {}), pool["spec"]
        announced = False
        for advertisement in of_kind(documents, "L2Advertisement"):
            told = advertisement.get("spec") or {}
            pools, selectors = told.get("ipAddressPools", []), told.get("ipAddressPoolSelectors", [])
            here = (not pools and not selectors) or name in pools or any(matches(one, labels) for one in selectors)
            services = told.get("serviceSelectors", [])
            announced |= here and (not services or any(matches(one, probe.labels) for one in services))
        to = spec.get("serviceAllocation") or {}
        names, by_label = to.get("namespaces", []), to.get("namespaceSelectors", [])
        services = to.get("serviceSelectors", [])
        in_namespace = (not names and not by_label) or probe.namespace in names
        in_namespace = in_namespace or any(matches(one, probe.namespace_labels) for one in by_label)
        fits = in_namespace and (not services or any(matches(one, probe.labels) for one in services))
        # internal/allocator (Allocate): with a serviceAllocation that selects nothing nobody gets it unasked
        auto = spec.get("autoAssign", True) and (spec.get("serviceAllocation") is None or names or by_label or services)
        asked = auto if probe.pool is None else probe.pool == name
        if announced and fits and asked:
            every = [address for text in spec["addresses"] for address in each(text)]
            found |= {one for one in every if not (spec.get("avoidBuggyIPs") and ends_badly(one))}
    for pool in metallb_before_0_13(documents):
        asked = pool.get("auto-assign", True) if probe.pool is None else probe.pool == pool["name"]
        if asked and pool["protocol"] == "layer2":
            every = [address for text in pool["addresses"] for address in each(text)]
            found |= {one for one in every if not (pool.get("avoid-buggy-ips") and ends_badly(one))}
    return found


def metallb_before_0_13(documents):
    for config in of_kind(documents, "ConfigMap"):
        yield from yaml.safe_load(config["data"]["config"])["address-pools"]
    for pool in of_kind(documents, "AddressPool"):
        spec = {key: value for key, value in pool["spec"].items() if key in ("protocol", "addresses")}
        auto = pool["spec"].get("autoAssign", True)
        yield {"name": pool["metadata"]["name"], "auto-assign": auto, **spec}


def openelb(documents, probe):
    enabled = [eip for eip in of_kind(documents, "Eip") if not eip["spec"].get("disable")]

    def of_namespace(eip):
        by_label = eip["spec"].get("namespaceSelector")
        named = probe.namespace in eip["spec"].get("namespaces", [])
        return named or (by_label is not None and matches({"matchLabels": by_label}, probe.namespace_labels))

    def is_default(eip):
        return eip["metadata"].get("annotations", {}).get("eip.openelb.kubesphere.io/is-default-eip") == "true"

    if probe.pool is not None:
        chosen = [eip for eip in enabled if eip["metadata"]["name"] == probe.pool]
    else:
        chosen = [eip for eip in enabled if of_namespace(eip)] or [eip for eip in enabled if is_default(eip)][:1]
    on_the_lan = [eip for eip in chosen if eip["spec"].get("protocol") in ("layer2", "vip")]
    return {address for eip in on_the_lan for address in each(eip["spec"]["address"])}


def kubevip(documents, probe):
    (config,) = of_kind(documents, "ConfigMap")
    data = config["data"]
    keys = (f"cidr-{probe.namespace}", "cidr-global", f"range-{probe.namespace}", "range-global")
    text = next((data[key] or "" for key in keys if key in data), "")
    if text in ("", "0.0.0.0/32") or probe.pool is not None:
        return set()
    if "/" not in text:
        found = [address for part in text.split(",") for address in each(part)]
    else:
        networks = [ip_network(part, strict=False) for part in text.split(",")]
        by_family = [[one for one in networks if one.version == version] for version in (4, 6)]
        found = []
        for network in (one for family in by_family for one in collapse_addresses(family)):
            every = list(network)
            skip = str(data.get("skip-end-ips-in-cidr", "")).lower() == "true"
            found += every[1:-1] if skip and network.version == 4 and len(every) > 2 else every
    return {address for address in found if not ends_badly(address)}


def purelb(documents, probe):
    groups = of_kind(documents, "ServiceGroup")
    serving = [group for group in groups if probe.namespace in group["spec"].get("namespaces", [])]
    fenced = any(group["spec"].get("enforceNamespaces") for group in serving)
    marked = [group for group in serving if group["spec"].get("namespaceDefault")]
    default = [group for group in groups if group["metadata"]["name"] == "default"]
    if probe.pool is not None:
        chosen = [group for group in groups if group["metadata"]["name"] == probe.pool]
        chosen = [
            group for group in chosen if group in serving or not (fenced or group["spec"].get("enforceNamespaces"))
        ]
    elif len(serving) == 1:
        chosen = serving
    elif serving and len(marked) == 1:
        chosen = marked
    else:
        chosen = [] if fenced else [group for group in default if not group["spec"].get("enforceNamespaces")]
    found = set()
    for local in (group["spec"]["local"] for group in chosen if "local" in group["spec"]):
        entries = [local[key] for key in ("v4pool", "v6pool") if key in local]
        entries += [entry for key in ("v4pools", "v6pools") for entry in local.get(key, [])]
        entries += [local] if "pool" in local else []
        found |= {address for entry in entries for address in each(entry["pool"])}
    return found


def cilium(documents, probe):
    policies = [policy["spec"] for policy in of_kind(documents, "CiliumL2AnnouncementPolicy")]
    if not any(
        policy.get("loadBalancerIPs") and matches(policy.get("serviceSelector") or {}, probe.pseudo)
        for policy in policies
    ):
        return set()
    found = set()
    for pool in of_kind(documents, "CiliumLoadBalancerIPPool"):
        spec = pool["spec"]
        if (
            probe.pool is not None
            or spec.get("disabled")
            or not matches(spec.get("serviceSelector") or {}, probe.pseudo)
        ):
            continue
        for block in spec.get("blocks", []):
            if "cidr" in block:
                every = each(block["cidr"])
                found |= set(every[1:-1] if spec.get("allowFirstLastIPs") == "No" and len(every) > 2 else every)
            else:
                found |= set(each(f"{block['start']}-{block.get('stop', block['start'])}"))
    return found


ORACLES = {"metallb": metallb, "openelb": openelb, "kubevip": kubevip, "purelb": purelb, "cilium": cilium}
