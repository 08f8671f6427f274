"""What users set in the chart, in mixtures: values for Helm, and what must show in the objects."""

import itertools
import random
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import combinations, product
from typing import Any, NamedTuple

import yaml

Objects = dict[tuple[str, str, str], dict[str, Any]]
"""By kind, namespace and name."""
Values = dict[str, Any]

MONITORING = "monitoring.coreos.com/v1"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
AFFINITY: Values = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "lb", "operator": "In", "values": ["yes"]}]}]
        }
    }
}
TOLERATIONS = [{"operator": "Exists"}]
SPREAD = [
    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {}}}
]
RESOURCES: Values = {"requests": {"cpu": "1", "memory": "200Mi"}, "limits": {"memory": "1Gi", "cpu": "2"}}
ENV = [{"name": "TZ", "value": "UTC"}, {"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]
RELABELINGS = [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node", "action": "replace"}]
NASTY = """it's "quoted": {{ .Values.image }} # & *x |"""


class Choice(NamedTuple):
    name: str
    values: Values
    shows: Callable[[Objects], Any]
    """Truth about the objects; ``assert`` it."""


def objects(text: str) -> Objects:
    found: Objects = {}
    for each in filter(None, yaml.load_all(text, Loader=yaml.CSafeLoader)):
        key = each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]
        assert key not in found
        found[key] = each
    return found


def of_kind(found: Objects, kind: str) -> list[dict[str, Any]]:
    return [each for (one, _, _), each in found.items() if one == kind]


WHO = {"agent": "DaemonSet", "controller": "Deployment"}


def workload(found: Objects, who: str) -> dict[str, Any]:
    (only,) = of_kind(found, WHO[who])
    return only


def pod(found: Objects, who: str) -> dict[str, Any]:
    spec: dict[str, Any] = workload(found, who)["spec"]["template"]["spec"]
    return spec


def container(found: Objects, who: str) -> dict[str, Any]:
    (only,) = pod(found, who)["containers"]
    assert isinstance(only, dict)
    return only


def each_of(values: Values) -> Values:
    return dict.fromkeys(WHO, values)


def mounted(found: Objects, who: str, name: str) -> dict[str, Any]:
    (volume,) = (each for each in pod(found, who)["volumes"] if each["name"] == name)
    return {"name": name, **volume["secret"]}


def images(found: Objects) -> set[str]:
    return {container(found, who)["image"] for who in WHO}


def both(found: Objects, shows: Callable[[Objects, str], Any]) -> bool:
    return all(shows(found, who) for who in WHO)


def flag(found: Objects, who: str, name: str) -> list[str]:
    return [each for each in container(found, who)["args"] if each.partition("=")[0] == name]


IN_KERNEL = {"BPF", "NET_ADMIN"}


def answering(found: Objects) -> tuple[list[str], set[str]]:
    """The flag, and which of the rights for a program in the kernel there are."""
    added = container(found, "agent")["securityContext"]["capabilities"]["add"]
    assert len(set(added)) == len(added)
    return flag(found, "agent", "--responder"), IN_KERNEL & {*added}


def placed(found: Objects) -> set[str]:
    return {namespace for _, namespace, _ in found if namespace} - {"kube-node-lease"}


def accounts(found: Objects) -> set[str]:
    """Namespaces that the admission policies and bindings speak of."""
    policies = [each["expression"] for policy in of_kind(found, "ValidatingAdmissionPolicy")
                for each in policy["spec"]["matchConditions"]]  # fmt: skip
    named = {text.split("serviceaccount:")[1].split(":")[0] for text in policies if "serviceaccount:" in text}
    bound = {each["namespace"] for kind in ("RoleBinding", "ClusterRoleBinding") for binding in of_kind(found, kind)
             for each in binding["subjects"]}  # fmt: skip
    return named | bound


def alerts(found: Objects) -> dict[str, dict[str, Any]]:
    return {each["alert"]: each for rule in of_kind(found, "PrometheusRule")
            for group in rule["spec"]["groups"] for each in group["rules"]}  # fmt: skip


def egress(found: Objects) -> set[int]:
    return {port["port"] for policy in of_kind(found, "NetworkPolicy") for rule in policy["spec"]["egress"]
            for port in rule["ports"]}  # fmt: skip


def monitors(found: Objects, kind: str, endpoints: str) -> bool:
    there = of_kind(found, kind)
    return {each["metadata"]["namespace"] for each in there} == placed(found) and all(
        each["metadata"]["labels"]["release"] == "prometheus"
        and each["metadata"]["annotations"] == {"note": NASTY}
        and each["spec"][endpoints]
        == [{"port": "metrics", "interval": "15s", "scrapeTimeout": "10s", "relabelings": RELABELINGS}]
        for each in there
    )


MONITOR: Values = {
    "enabled": True, "labels": {"release": "prometheus"}, "annotations": {"note": NASTY},
    "interval": "15s", "scrapeTimeout": "10s", "relabelings": RELABELINGS,
}  # fmt: skip
OURS = {"eip-speaker", "eip-speaker-agents"}
OTHERS = {"lb-system", "lb-agents"}

CHOICES: list[list[Choice]] = [
    [
        Choice(forwarder, {"forwarder": forwarder}, lambda found, it=forwarder: both(  # type: ignore[misc]
            found, lambda found, who: flag(found, who, "--forwarder") == [f"--forwarder={it}"]))
        for forwarder in ("none", "assist", "nftables", "ipvs")
    ],
    [
        Choice("image as built", {}, lambda found: images(found) == {"registry.example.com:5000/lb/eip-speaker:1.2.3"}),
        Choice("a mirror", {"image": {"registry": "mirror.example:5000", "pullPolicy": "Always"}},
               lambda found: images(found) == {"mirror.example:5000/lb/eip-speaker:1.2.3"}
               and both(found, lambda found, who: container(found, who)["imagePullPolicy"] == "Always")),
        Choice("a digest", {"image": {"registry": "", "repository": "eip", "tag": "", "digest": DIGEST}},
               lambda found: images(found) == {f"eip@{DIGEST}"}),
        Choice("one's own tag", {"image": {"digest": DIGEST}, "agent": {"image": {"tag": "9", "pullPolicy": "Never"}}},
               lambda found: container(found, "agent")["image"] == "registry.example.com:5000/lb/eip-speaker:9"
               and container(found, "agent")["imagePullPolicy"] == "Never"
               and container(found, "controller")["image"].endswith(f":1.2.3@{DIGEST}")
               and "imagePullPolicy" not in container(found, "controller")),
    ],
    [
        Choice("unmonitored", {}, lambda found: not of_kind(found, "PodMonitor") + of_kind(found, "ServiceMonitor")),
        Choice("PodMonitor", {"podMonitor": MONITOR},
               lambda found: monitors(found, "PodMonitor", "podMetricsEndpoints")
               and flag(found, "agent", "--metrics")[0].startswith("--metrics=$(HOST_IP):")),
        Choice("ServiceMonitor", {"serviceMonitor": MONITOR},
               lambda found: monitors(found, "ServiceMonitor", "endpoints") and len(of_kind(found, "Service")) == 2
               and all(each["spec"]["clusterIP"] == "None" for each in of_kind(found, "Service"))),
    ],
    [
        Choice("no alerts", {}, lambda found: alerts(found) == {}),
        Choice("alerts", {"prometheusRule": {"enabled": True}},
               lambda found: alerts(found)["EipFlapping"]["expr"].endswith("> 3")
               and alerts(found)["EipAnsweredByNobody"]["annotations"]["summary"].endswith("{{ $labels.eip }}")),
        Choice("other alerts", {"prometheusRule": {
            "enabled": True, "labels": {"release": "x"}, "annotations": {"note": NASTY},
            "runbookUrl": "https://wiki.example/runbooks",
            "alerts": {"EipConflict": {"enabled": False}, "SpeakerLost": {"severity": "page", "for": "5m"},
                       "PoolNearlyFull": {"threshold": 0.75}, "EipFlapping": {"threshold": 0},
                       "HellosLost": {"threshold": 0.5}},
        }}, lambda found: "EipConflict" not in alerts(found)
               and alerts(found)["SpeakerLost"]["for"] == "5m"
               and alerts(found)["SpeakerLost"]["labels"]["severity"] == "page"
               and alerts(found)["PoolNearlyFull"]["expr"].endswith("> 0.75")
               and alerts(found)["EipFlapping"]["expr"].endswith("> 0")
               and alerts(found)["HellosLost"]["expr"].count("0.5 *") == 2
               and of_kind(found, "PrometheusRule")[0]["metadata"]["annotations"] == {"note": NASTY}
               and alerts(found)["NameClash"]["annotations"]["runbook_url"]
               == "https://wiki.example/runbooks#nameclash"),
    ],
    [
        Choice("the controller's key", {}, lambda found: flag(found, "controller", "--make-key")
               and any(each["resources"] == ["secrets"] for role in of_kind(found, "Role") for each in role["rules"])),
        Choice("a key by hand", {"key": {"create": False}}, lambda found: not flag(found, "controller", "--make-key")),
        Choice("a key of another name", {"key": {"existingSecret": "sealed-key"}},
               lambda found: not flag(found, "controller", "--make-key")
               and not any("secrets" in each["resources"] for role in of_kind(found, "Role") for each in role["rules"])
               and any(each.get("secret", {}).get("secretName") == "sealed-key"
                       for each in pod(found, "agent")["volumes"])),
    ],
    [
        Choice("no broker", {}, lambda found: 53 not in egress(found)),
        Choice("a broker", {"mqtt": {"enabled": True, "secret": "broker", "port": 1883}},
               lambda found: (1883 in egress(found) or not egress(found))
               and both(found, lambda found, who: flag(found, who, "--mqtt")
                        and {"name": "mqtt", "secretName": "broker"}.items() <= mounted(found, who, "mqtt").items())),
    ],
    [
        Choice("CRDs", {}, lambda found: [each["metadata"]["annotations"] for each in
                                          of_kind(found, "CustomResourceDefinition")]
               == [{"helm.sh/resource-policy": "keep"}] * 2),
        Choice("CRDs that go", {"crds": {"keep": False}}, lambda found: not any(
            each["metadata"].get("annotations") for each in of_kind(found, "CustomResourceDefinition"))),
        Choice("no CRDs", {"crds": {"enabled": False}}, lambda found: not of_kind(found, "CustomResourceDefinition")),
    ],
    [
        Choice("our namespaces", {}, lambda found: placed(found) == accounts(found) == OURS
               and {each["metadata"]["name"] for each in of_kind(found, "Namespace")} == OURS
               and not flag(found, "controller", "--agents-namespace")),
        Choice("other namespaces", {"namespaces": {"controller": "lb-system", "agents": "lb-agents", "create": False}},
               lambda found: placed(found) == accounts(found) == OTHERS and not of_kind(found, "Namespace")
               and flag(found, "controller", "--agents-namespace") == ["--agents-namespace=lb-agents"]),
    ],
    [
        Choice("usual nodes", {}, lambda found: both(
            found, lambda found, who: pod(found, who)["nodeSelector"] == {"kubernetes.io/os": "linux"})),
        Choice("some nodes", {
            **each_of({"nodeSelector": {"lb": "yes"}, "tolerations": TOLERATIONS, "affinity": AFFINITY,
                       "priorityClassName": "high"}),
            "controller": {"nodeSelector": {"lb": "yes"}, "tolerations": TOLERATIONS, "priorityClassName": "high",
                           "affinity": {"podAntiAffinity": None, **AFFINITY}, "topologySpreadConstraints": SPREAD},
        }, lambda found: both(found, lambda found, who: pod(found, who)["tolerations"] == TOLERATIONS
                              and pod(found, who)["nodeSelector"] == {"kubernetes.io/os": "linux", "lb": "yes"}
                              and pod(found, who)["affinity"] == AFFINITY
                              and pod(found, who)["priorityClassName"] == "high")
               and pod(found, "controller")["topologySpreadConstraints"] == SPREAD),
        Choice("nothing said", each_of({"nodeSelector": None, "tolerations": [], "affinity": None,
                                        "priorityClassName": ""}),
               lambda found: both(found, lambda found, who: not pod(found, who).keys() & {
                   "nodeSelector", "tolerations", "affinity", "priorityClassName"})),
    ],
    [
        Choice("usual pods", {}, lambda found: both(
            found, lambda found, who: "annotations" not in workload(found, who)["spec"]["template"]["metadata"])),
        Choice("told more", each_of({
            "labels": {"team": "net"}, "annotations": {"note": NASTY}, "podLabels": {"team": "net", "on": "true"},
            "podAnnotations": {"note": NASTY, "number": "1"}, "env": ENV, "args": ["--settle=60"], "logLevel": "debug",
            "imagePullSecrets": [{"name": "pull"}], "resources": RESOURCES,
        }), lambda found: both(found, lambda found, who: workload(found, who)["metadata"]["labels"]["team"] == "net"
                               and workload(found, who)["metadata"]["annotations"] == {"note": NASTY}
                               and workload(found, who)["spec"]["template"]["metadata"]["labels"]["on"] == "true"
                               and workload(found, who)["spec"]["template"]["metadata"]["annotations"]
                               == {"note": NASTY, "number": "1"}
                               and container(found, who)["env"][-2:] == ENV
                               and container(found, who)["args"][-2:] == ["--log-level=debug", "--settle=60"]
                               and pod(found, who)["imagePullSecrets"] == [{"name": "pull"}]
                               and container(found, who)["resources"] == RESOURCES)),
    ],
    [
        Choice("usual answers", {}, lambda found: answering(found) == (
            (["--responder=socket"], set()) if flag(found, "agent", "--forwarder") == ["--forwarder=none"]
            else (["--responder=auto"], IN_KERNEL))),
        Choice("answers by sockets", {"agent": {"responder": "socket"}},
               lambda found: answering(found)[0] == ["--responder=socket"]),
        Choice("answers in the kernel", {"agent": {"responder": "kernel"}},
               lambda found: answering(found) == (["--responder=kernel"], IN_KERNEL)),
    ],
    [
        Choice("one cluster", {}, lambda found: not flag(found, "agent", "--group")
               and not flag(found, "agent", "--hello")
               and flag(found, "controller", "--page") == ["--page=127.0.0.1:9901"]),
        Choice("a group", {
            "defaultClass": True, "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Net"}},
            "networkPolicy": {"enabled": False}, "imagePullSecrets": [{"name": "all"}],
            "agent": {"name": "a", "group": "edge", "hello": 50, "metricsPort": 9910, "page": "[::1]:9911",
                      "ignoreExcludeLabel": True, "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}}},
            "controller": {"name": "c", "replicas": 1, "page": "", "honourAnnotations": ["metallb", "cilium"]},
        }, lambda found: flag(found, "agent", "--group") == ["--group=edge"]
               and flag(found, "agent", "--hello") == ["--hello=50"]
               and flag(found, "agent", "--page") == ["--page=[::1]:9911"]
               and flag(found, "agent", "--metrics")[0].endswith(":9910")
               and flag(found, "agent", "--ignore-exclude-label")
               and container(found, "agent")["ports"] == [{"name": "metrics", "containerPort": 9910, "hostPort": 9910}]
               and {"path": "/run/eip-speaker-edge", "type": "DirectoryOrCreate"}
               in [each.get("hostPath") for each in pod(found, "agent")["volumes"]]
               and workload(found, "agent")["spec"]["updateStrategy"]
               == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
               and not flag(found, "controller", "--page")
               and flag(found, "controller", "--honour-annotations") == ["--honour-annotations=metallb,cilium"]
               and both(found, lambda found, who: flag(found, who, "--default-class"))
               and [workload(found, who)["metadata"]["name"] for who in WHO] == ["a", "c"]
               and workload(found, "controller")["spec"]["replicas"] == 1
               and not of_kind(found, "NetworkPolicy")
               and [each["metadata"]["annotations"] for each in of_kind(found, "ConfigMap")]
               == [{"grafana_folder": "Net"}]),
    ],
]  # fmt: skip
"""Of each row one is chosen."""


def merged(values: Values, changes: Values) -> Values:
    """As Helm merges them, but for null, which it sees itself."""
    found = {**values}
    for name, change in changes.items():
        both = isinstance(change, dict) and isinstance(found.get(name), dict)
        found[name] = merged(found[name], change) if both else change
    return found


def _mixtures(least: int, candidates: int = 60, seed: int = 34) -> Iterator[tuple[Choice, ...]]:
    """Any two choices of two rows are together in one of them; the first is what the chart does by itself. ``pairs``
    would look at all 62,208."""
    chance = random.Random(seed)
    rows = [range(len(row)) for row in CHOICES]
    missing = {pair for one, other in combinations(enumerate(rows), 2)
               for pair in product(product([one[0]], one[1]), product([other[0]], other[1]))}  # fmt: skip
    numbers = tuple(0 for _ in rows)
    for count in itertools.count(1):
        missing.difference_update(combinations(enumerate(numbers), 2))
        yield tuple(row[number] for row, number in zip(CHOICES, numbers, strict=True))
        if count >= least and not missing:
            return
        drawn = [tuple(map(chance.choice, rows)) for _ in range(candidates)]
        numbers = max(drawn, key=lambda each: len(missing.intersection(combinations(enumerate(each), 2))))


MIXTURES = list(_mixtures(30))


def values_of(mixture: tuple[Choice, ...]) -> Values:
    return reduce(merged, (choice.values for choice in mixture), {})
