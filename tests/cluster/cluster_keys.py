"""The certificates of a cluster, and a kubeconfig for each of its parts."""

import json
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

SERVER = "https://192.0.2.5:6443"
SERVED = "IP:192.0.2.5,IP:2001:db8:1::5,IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc"

USERS = {
    "admin": "/O=system:masters/CN=admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "apiserver-to-kubelets": "/O=system:masters/CN=apiserver-to-kubelets",
}

_EXTENSIONS = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
authorityKeyIdentifier=keyid
"""
_OF_A_CA = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,digitalSignature,keyCertSign")
"""As kubeadm makes it; `openssl req -x509` by itself leaves the key's usage open."""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make(directory: Path, nodes: Iterable[str], *, plain_ca: bool = False) -> None:
    """Keys, certificates and kubeconfigs in ``directory``; with ``plain_ca`` the authority's has no usage.

    ``ca.crt`` holds whom everybody trusts.
    """
    directory.mkdir(parents=True)
    _make_authority(directory, "first", plain=plain_ca)
    (directory / "ca.crt").write_text((directory / "first.crt").read_text())
    _certify_all(directory, nodes, "first")
    for name in (*USERS, *nodes):
        _write_kubeconfig(directory, name)
    _openssl(directory, "genrsa", "-out", "accounts.key", "2048")


def rotate(directory: Path, nodes: Collection[str]) -> Iterator[str]:
    """From the first authority to a second one: after each step everybody has to read all files again."""
    _make_authority(directory, "second")
    old, new = ((directory / f"{name}.crt").read_text() for name in ("first", "second"))
    (directory / "ca.crt").write_text(old + new)
    yield "both are trusted"
    _certify_all(directory, nodes, "second")
    yield "the second has certified everybody"
    (directory / "ca.crt").write_text(new)
    yield "the first is trusted no more"


def certify_server(directory: Path, name: str, addresses: Iterable[str]) -> None:
    """By the first authority, for whom clients ask at these addresses."""
    _certify(
        directory, "first", name, "/CN=kube-apiserver", f"subjectAltName={','.join(f'IP:{a}' for a in addresses)}\n"
    )


def _make_authority(directory: Path, name: str, *, plain: bool = False) -> None:
    extensions = () if plain else tuple(word for each in _OF_A_CA for word in ("-addext", each))
    (directory / "bare.cnf").write_text("[req]\ndistinguished_name=dn\n[dn]\n")
    bare = () if plain else ("-config", "bare.cnf")
    _openssl(directory, "req", "-x509", *_NEW_KEY, *bare, "-days", "365", "-subj", f"/CN=cluster {name}",
             "-keyout", f"{name}.key", "-out", f"{name}.crt", *extensions)  # fmt: skip


def _certify_all(directory: Path, nodes: Iterable[str], authority: str) -> None:
    _certify(directory, authority, "apiserver", "/CN=kube-apiserver", f"subjectAltName={SERVED}\n")
    users = USERS | {node: f"/O=system:nodes/CN=system:node:{node}" for node in nodes}
    for name, subject in users.items():
        _certify(directory, authority, name, subject)


def _openssl(directory: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {words[0]}: {done.stderr}")


def _certify(directory: Path, authority: str, name: str, subject: str, more: str = "") -> None:
    (directory / f"{name}.ext").write_text(_EXTENSIONS + more)
    _openssl(directory, "req", *_NEW_KEY, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
    _openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key",
             "-CAcreateserial", "-days", "365", "-extfile", f"{name}.ext", "-out", f"{name}.crt")  # fmt: skip


def _write_kubeconfig(directory: Path, name: str) -> None:
    user = {
        f"client-{part}": str(directory / f"{name}.{end}") for part, end in (("certificate", "crt"), ("key", "key"))
    }
    cluster = {"server": SERVER, "certificate-authority": str(directory / "ca.crt")}
    (directory / f"{name}.kubeconfig").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "cluster", "cluster": cluster}],
                "users": [{"name": name, "user": user}],
                "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
                "current-context": "cluster",
            }
        )
    )
