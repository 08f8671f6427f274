# syntax=docker/dockerfile:1
FROM python:3.13-slim-trixie AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY speaker speaker
RUN python -m venv /opt/speaker && /opt/speaker/bin/pip install --no-cache-dir .

FROM python:3.13-slim-trixie
# nft: the nftables forwarder and the guard. iptables: the guard on kernels without nf_tables.
RUN apt-get update && apt-get install --yes --no-install-recommends nftables iptables && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/speaker /opt/speaker
ENV PATH=/opt/speaker/bin:$PATH PYTHONDONTWRITEBYTECODE=1
# uid 0 without privileges of its own: capabilities added to a container are not ambient for other users.
ENTRYPOINT ["speaker"]
CMD ["run", "/etc/eip-speaker"]
