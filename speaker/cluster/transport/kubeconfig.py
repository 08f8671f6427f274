"""A kubeconfig file, read by the official client: certificates, tokens, exec plugins, proxies."""

import os
from pathlib import Path

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_kube_config
from yaml import YAMLError

from speaker.cluster.transport.trust import MAX_FILE, Server, Trust
from speaker.errors import EdgeError, SettingError
from speaker.system.files import read_regular, shown


async def read_kubeconfig(path: Path, context: str = "") -> Server:
    """``context`` '' is the current one. Raises SettingError, EdgeError."""
    configuration = Configuration()
    name = shown(path)
    try:
        # Several, as in $KUBECONFIG, it makes one of, and passes over those that are not there.
        files = [Path(each) for each in str(path).split(os.pathsep)]
        for file in files if len(files) == 1 else filter(Path.exists, files):
            read_regular(file, MAX_FILE)  # it would wait for the writer of a FIFO
        await load_kube_config(
            config_file=str(path), context=context or None, client_configuration=configuration, persist_config=False
        )
    # The library reads fields before it knows that they are there.
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        unread = f"cannot be read: {error.strerror}" if isinstance(error, OSError) and error.strerror else error
        raise SettingError(f"kubeconfig {name}: {unread}") from error
    named = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    try:
        trust = Trust(lambda: RESTClientObject(configuration).ssl_context, *(Path(file) for file in named if file))
    except OSError as error:  # ssl.SSLError is one
        raise EdgeError(f"certificates for the API: kubeconfig {name}: {error}") from error

    async def authorization() -> str | None:
        # It renews what an exec plugin gave, when that has run out.
        found = (await configuration.auth_settings()).get("BearerToken")
        return found["value"] if found is not None else None

    return Server(
        configuration.host.rstrip("/"),
        trust,
        tls_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        authorization=authorization,
    )
