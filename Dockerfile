# syntax=docker/dockerfile:1
# The base is pinned by tag, so that a rebuild takes Debian's and Python's fixes of the day. For an image that can be
# built again byte for byte pin it by digest: --build-arg BASE=python:3.13-slim-trixie@sha256:…
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# What was locked (`make lock`) and nothing else, as wheels: nothing is compiled, and no package's own code runs here.
COPY requirements.txt requirements-build.txt ./
RUN python -m venv --without-pip /opt/speaker
RUN python -m venv /opt/build
RUN /opt/build/bin/python -m pip --python /opt/speaker/bin/python install --no-compile --require-hashes --only-binary=:all: --requirement requirements.txt
RUN /opt/build/bin/python -m pip install --require-hashes --only-binary=:all: --requirement requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY manifests/systemd manifests/systemd
COPY speaker speaker
RUN /opt/build/bin/python -m pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /opt/wheel .
RUN /opt/build/bin/python -m pip --python /opt/speaker/bin/python install --no-compile --no-deps --no-index --find-links /opt/wheel eip-speaker
# The Kubernetes client's generated calls and models, of which we use none: 70 MB, and as much bytecode.
RUN find /opt/speaker/lib '(' -path '*/kubernetes/*client/api/*' -o -path '*/kubernetes/*client/models/*' ')' -type f ! -name __init__.py -delete
# Bytecode that does not depend on when it was made.
RUN /opt/speaker/bin/python -m compileall -q --invalidation-mode checked-hash /opt/speaker/lib
RUN /opt/build/bin/python -m pip --python /opt/speaker/bin/python check
# What Python packages are in it. The distribution's are in its own database, which scanners read.
RUN /opt/build/bin/cyclonedx-py environment --output-reproducible --output-format JSON --output-file /opt/speaker/sbom.cdx.json /opt/speaker/bin/python
RUN /opt/speaker/bin/speaker --version

FROM ${BASE}
# With the forwarder `none` the speaker starts no other program. nftables: `nft`, for the nftables forwarder and for
# IPVS's guard. iptables: to read what others have made with it.
RUN apt-get update && apt-get install --yes --no-install-recommends nftables iptables && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/*
COPY --from=build /opt/speaker /opt/speaker
# No bytecode is written: it is there, and the root file system is read-only. Logs leave at once.
ENV PATH=/opt/speaker/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN speaker --version
# Kubernetes has its own probes and does not read this one. It asks where the speaker listens unless told otherwise
# (--metrics); an OCI image (podman build without --format docker) has no place for it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9900/healthz', timeout=3)"]
# uid 0 without privileges of its own: capabilities added to a container are not ambient for other users. The
# controller runs as nobody in particular (runAsUser in manifests/base/controller.yaml).
LABEL org.opencontainers.image.title=eip-speaker \
    org.opencontainers.image.description="A layer-2 load balancer for bare-metal Kubernetes" \
    org.opencontainers.image.licenses=Apache-2.0
ENTRYPOINT ["speaker"]
CMD ["run", "/etc/eip-speaker"]
