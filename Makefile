# Two commands do all their own set-up: `make demo` and `make test`.
SHELL := /bin/bash
VENV  := .venv
# Which the environment is made of: Debian's own is a third faster than what pyenv compiles.
export PYTHON ?= python3
BIN   := $(VENV)/bin
export PATH := $(PATH):/usr/sbin:/sbin
# Namespaces need a right that root has; everybody else gets it inside a user namespace, where the machine lets them make one.
INSIDE := $(shell [ "$$(id -u)" = 0 ] || { unshare -Urnm true 2>/dev/null && echo unshare -Urnm; })
# User-Mode Linux, which the tests of IPVS run in, is for one architecture.
UML = $(if $(filter x86_64,$(shell uname -m)),$(NEED_KERNEL))
MQTT := mosquitto:mosquitto mosquitto_sub:mosquitto-clients
BROWSER := chromium:chromium chromedriver:chromium-driver
# What computes and measures no time, what runs in a guest, what takes a whole cluster; all else is about real time.
PATIENT := tests/unit tests/scenarios
GUEST   := tests/ipvs
CLUSTER := tests/cluster
OUTSIDE := tests $(addprefix --ignore=,$(GUEST) $(CLUSTER))
TIMED   := $(OUTSIDE) $(addprefix --ignore=,$(PATIENT))
TWO     := -n 2 --dist loadfile
# What takes minutes is marked with one of these: long(part="soak"). CI runs some of each row at a time (.ci/run).
PARTS         := agents alerts chaos control exploration faults lab practice searches soak
CLUSTER_PARTS := moves disasters forwarder change alone rest beside
mark_of  = $(if $(filter core,$(1)),not long,long(part='$(1)'))
marks_of = -m \"$(foreach part,$(1),$(if $(filter-out $(firstword $(1)),$(part)),or )$(call mark_of,$(part)))\"
LANES   := $(BIN)/python .ci/lanes.py
ASIDE   := $(BIN)/python .ci/aside.py
FUZZ_RUNS ?= 200000
FUZZ_SETS ?= 20000
FUZZ_SCHEDULES ?= 100000
FUZZ_FIELDS ?= 50000
FUZZ_HISTORIES ?= 50000
UV := --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock"

.PHONY: demo cluster cluster-down test unit test-long test-api test-qemu test-cluster test-cluster-ipvs check bench fuzz explore chaos soak lock image rendered chart dist plugin packages tagged sign sign-image push-chart publish clean

demo: $(VENV)/.run
	@.ci/need nft:nftables
	@$(BIN)/speaker lab --scenario reach

# A real cluster in namespaces of this machine, and a story on it (docs/cluster.md). Needs root.
PROXY ?= iptables
NODES ?= 3
# g++ brings the C library's headers, which gcc only recommends.
NEED_KERNEL := gcc:gcc g++:g++ flex:flex bison:bison bc:bc xz:xz-utils setpriv:util-linux
NEED_CLUSTER := containerd:containerd runc:runc /usr/lib/cni/ptp:containernetworking-plugins buildah:buildah debootstrap:debootstrap \
  nft:nftables iptables:iptables conntrack:conntrack ipset:ipset ipvsadm:ipvsadm ip:iproute2 modprobe:kmod sysctl:procps \
  arping:arping ping:iputils-ping curl:curl openssl:openssl

cluster: $(VENV)/.run
	@.ci/need $(NEED_CLUSTER) $(if $(filter ipvs,$(PROXY)),$(NEED_KERNEL))
	@$(BIN)/python $(CLUSTER)/cluster_command.py up --proxy $(PROXY) --nodes $(NODES)

cluster-down:
	@python3 $(CLUSTER)/cluster_command.py down

# PART=core is what CI runs every time, PART=NAME (of CLUSTER_PARTS) what it runs by turns; MODE is kube-proxy's, or all. BESIDE=1
# (or PART=beside): every node also has the static pod of `speaker control-plane`, whose clients count too.
MODE ?=
BESIDE ?=
test-cluster: $(VENV)/.dev
	@NEED_OPTIONAL=1 .ci/need $(NEED_CLUSTER) tcpdump:tcpdump $(MQTT)
	@$(BIN)/python $(CLUSTER)/cluster_command.py build
	EIP_SPEAKER_MODES="$(MODE)" EIP_SPEAKER_BESIDE="$(or $(BESIDE),$(filter beside,$(PART)))" \
	  $(LANES) "$(BIN)/pytest --durations=12 $(if $(PART),$(call marks_of,$(PART))) $(CLUSTER)"

# What that leaves out where the kernel has no ip_vs, with a kernel that has: User-Mode Linux, built once.
test-cluster-ipvs: $(VENV)/.dev
	@.ci/need $(NEED_CLUSTER) $(NEED_KERNEL) tcpdump:tcpdump $(MQTT)
	@$(BIN)/python $(CLUSTER)/cluster_command.py build
	$(BIN)/python $(CLUSTER)/cluster_kernel.py $(BIN)/pytest --durations=12 -k ipvs $(CLUSTER)

NEED_TEST := nft:nftables ip:iproute2 ping:iputils-ping arping:arping arp-scan:arp-scan ndisc6:ndisc6 curl:curl \
  tcpdump:tcpdump $(MQTT) openssl:openssl $(UML) conntrack:conntrack ipvsadm:ipvsadm iptables-legacy:iptables sysctl:procps \
  promtool:prometheus zsh:zsh fish:fish $(BROWSER)
SHORT     := -m 'not long and not apiserver'

# The guest's kernel is built once, by its first test; where the tests have no network, before (tests/cluster/cluster_kernel.py).
test: $(VENV)/.dev
	@NEED_OPTIONAL=1 .ci/need $(NEED_TEST)
	@$(if $(INSIDE),$(GUEST)/guest || true)
	@$(INSIDE) $(LANES) "$(ASIDE) $(BIN)/pytest -n 2 $(SHORT) $(PATIENT)" \
	  "nice -n 10 $(BIN)/pytest $(SHORT) $(GUEST)" "$(BIN)/pytest $(TWO) $(SHORT) $(TIMED)"

# What needs no rights: for a pull request, in a quarter of the time of `make test`.
unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 $(SHORT) $(PATIENT)

# What `make test` leaves out as it takes minutes, or one part of it: PART=soak. The part `agents` asks a kube-apiserver;
# `searches` are those of Hypothesis that `make test` has too, with more examples.
test-long: PART ?= $(PARTS)
test-long: $(VENV)/.dev
	@NEED_OPTIONAL=1 .ci/need $(NEED_TEST)
	@$(INSIDE) $(LANES) \
	  $(if $(filter searches,$(PART)),"$(ASIDE) env HYPOTHESIS_PROFILE=long $(BIN)/pytest $(TWO) -m hypothesis $(PATIENT)") \
	  $(if $(filter-out searches,$(PART)),"$(BIN)/pytest $(TWO) $(call marks_of,$(filter-out searches,$(PART))) $(OUTSIDE)")

# What `make test` leaves out: it needs etcd and kube-apiserver, found where `make cluster` leaves them or in $KUBEBUILDER_ASSETS.
test-api: $(VENV)/.dev
	@NEED_OPTIONAL=1 .ci/need $(NEED_TEST)
	@$(INSIDE) $(LANES) "$(BIN)/pytest $(TWO) -m 'apiserver and not long' $(TIMED)"

# The tests of IPVS on a stock kernel: takes minutes, and fetches 70 MB once.
test-qemu: $(VENV)/.dev
	@NEED_OPTIONAL=1 .ci/need qemu-system-x86_64:qemu-system-x86 nft:nftables ip:iproute2 ping:iputils-ping arping:arping ipvsadm:ipvsadm \
	  modprobe:kmod sysctl:procps
	EIP_SPEAKER_GUEST=qemu $(BIN)/pytest tests/ipvs -m ipvs

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/test_structure.py tests/unit/test_docs.py

# Twenty minutes at most, and a table at the end; BENCH takes what benchmarks/bench.py does: --only failover.
BENCH ?=
bench: $(VENV)/.dev
	@NEED_OPTIONAL=1 .ci/need nft:nftables ip:iproute2 openssl:openssl
	@$(INSIDE) $(BIN)/python benchmarks/bench.py $(BENCH)

# Long searches for what the tests look for briefly: bytes that crash a parser, routes that the kernel reads otherwise,
# schedules that break a promise of ownership, fields that let somebody in when they cannot be read, histories that files
# and an API end differently.
fuzz: $(VENV)/.fuzz
	for f in tests/fuzz/fuzz_*.py; do echo "== $$f"; $(BIN)/python $$f -runs=$(FUZZ_RUNS) || exit 1; done
	SPEAKER_RESOLVER_SETS=$(FUZZ_SETS) $(INSIDE) $(BIN)/pytest -q tests/netns/interfaces/test_against_the_kernel.py
	PYTHONPATH=tests $(BIN)/python -m simulation --schedules $(FUZZ_SCHEDULES)
	SPEAKER_FAIL_CLOSED=$(FUZZ_FIELDS) $(BIN)/pytest -q tests/unit/test_admitted_clients.py
	SPEAKER_TWO_SOURCES=$(FUZZ_HISTORIES) $(BIN)/pytest -q tests/verified/test_two_sources.py

# Every schedule of a small world of the ownership machine, as far as an hour goes, of which `make test-long` has two minutes.
EXPLORE_SECONDS ?= 3600
explore: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m simulation.exploring --seconds $(EXPLORE_SECONDS)

# An hour of everything at once, of which `make test-long` has three minutes. SOAK takes what tests/soak/soak.py does: --seed N
# for what was seen before, --api to ask agents by a real kube-apiserver.
SOAK_SECONDS ?= 3600
SOAK ?=
soak: $(VENV)/.dev
	@.ci/need nft:nftables
	$(INSIDE) $(BIN)/python tests/soak/soak.py --seconds $(SOAK_SECONDS) $(SOAK)

# Errors in any function of a running speaker, by chance, of which `make test-long` has twenty: three or four a minute. CHAOS_OF takes
# what tests/faults/chaos.py does: --fault "…" plays one of those again.
CHAOS ?= 300
SEED ?=
CHAOS_OF ?=
chaos: $(VENV)/.dev
	@.ci/need nft:nftables ip:iproute2
	$(INSIDE) $(BIN)/python tests/faults/chaos.py --count $(CHAOS) $(addprefix --seed ,$(SEED)) $(CHAOS_OF)

# What the image is built from, for every platform: the newest versions that pyproject.toml allows, or with
# LOCK=--upgrade-package=NAME the newest of one. Tests say when it no longer covers pyproject.toml.
LOCK ?= --upgrade
lock: $(VENV)/.lock
	$(BIN)/uv pip compile $(UV) $(LOCK) --extra mqtt --output-file requirements.txt pyproject.toml
	$(BIN)/python -c 'import tomllib; read = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*read["build-system"]["requires"], *read["dependency-groups"]["image"], sep="\n")' \
	  | $(BIN)/uv pip compile $(UV) $(LOCK) --output-file requirements-build.txt -
	$(BIN)/uv pip compile $(UV) $(LOCK) --group packages --output-file requirements-packages.txt

IMAGE ?= eip-speaker:dev
# OWNER/NAME on GitHub, which alerts, the chart and krew's manifest refer to.
REPOSITORY ?= REPOSITORY
COMPONENTS ?= make-key

# The image, by docker, podman or buildah, and with TO=push, kind, k3s, microk8s or containerd what takes it to the nodes.
TO ?=
image:
	@.ci/image $(IMAGE) $(TO)

# What is applied to a cluster: one file for each overlay, with these components, and a Helm chart. Both name IMAGE, both
# go to dist/, and both take kubectl, which has kustomize in it.
RENDER := REPOSITORY=$(REPOSITORY) PATH="$$PATH:$${XDG_CACHE_HOME:-$$HOME/.cache}/eip-speaker/cluster/bin" $(BIN)/python manifests/render.py
rendered: $(VENV)/.run
	@$(RENDER) files $(IMAGE) dist/manifests $(COMPONENTS)

chart: $(VENV)/.run
	@$(RENDER) chart $(IMAGE) dist/chart

# Wheel and source in dist/python, by the build tools that `make lock` wrote down.
dist: $(VENV)/.build
	$(VENV)/build/bin/python -m hatchling build --directory dist/python

# The systemd part as deb and rpm, the same bytes every time, by nfpm as `make lock` wrote it down.
packages: $(VENV)/.packages
	@mkdir -p dist/packages
	for kind in deb rpm; do \
	  VERSION=$(VERSION) REPOSITORY=$(REPOSITORY) $(VENV)/packages/bin/nfpm package --config manifests/packages/package.yaml \
	    --packager $$kind --target dist/packages/ || exit 1; \
	done

# What krew installs `kubectl eip` from, the same bytes every time, and the manifest that names them.
plugin:
	@mkdir -p dist
	@tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --directory manifests/krew kubectl-eip \
	  --directory ../.. LICENSE | gzip --no-name > dist/kubectl-eip.tar.gz
	@sed -e "s|VERSION|v$(VERSION)|; s|REPOSITORY|$(REPOSITORY)|" \
	  -e "s|SHA256$$|$$(sha256sum dist/kubectl-eip.tar.gz | cut -d' ' -f1)|" -e '/^#/d' manifests/krew/eip.yaml > dist/eip.yaml

# What .github/workflows/release.yml does besides (docs/releases.md): sees that TAG is this version's, signs without a key
# of its own (cosign), and puts all files into a release of GitHub's (gh).
# The chart also goes to an OCI registry, CHARTS, whose login REGISTRY_USER and REGISTRY_TOKEN in the environment are.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' speaker/__init__.py)
RELEASED = dist/python/* dist/manifests/*.yaml dist/chart/*.tgz dist/eip.yaml dist/kubectl-eip.tar.gz dist/packages/*.deb dist/packages/*.rpm
CHARTS ?= oci://ghcr.io/$(REPOSITORY)/charts
tagged:
	@[ "$(TAG)" = "v$(VERSION)" ] || { echo "$(TAG): speaker/__init__.py says $(VERSION)" >&2; exit 1; }
	@[ -z "$$GITHUB_OUTPUT" ] || echo "version=$(VERSION)" >>"$$GITHUB_OUTPUT"

sign:
	for file in $(RELEASED); do cosign sign-blob --yes --bundle "$$file.sigstore.json" "$$file" || exit 1; done

sign-image:
	cosign sign --yes $(IMAGE)

# Signed by its digest, which helm prints: a tag may be moved.
push-chart:
	@[ -z "$$REGISTRY_TOKEN" ] || printenv REGISTRY_TOKEN | helm registry login --username "$$REGISTRY_USER" --password-stdin \
	  $(firstword $(subst /, ,$(CHARTS:oci://%=%)))
	set -o pipefail; helm push $(PUSH) dist/chart/eip-speaker-$(VERSION).tgz $(CHARTS) 2>&1 | tee dist/chart/pushed
	cosign sign --yes "$(CHARTS:oci://%=%)/eip-speaker@$$(sed -n 's/^Digest: //p' dist/chart/pushed)"

publish:
	gh release create "$(TAG)" --verify-tag --title "$(TAG)" --notes "What is new: CHANGELOG.md. How to verify: docs/releases.md." \
	  dist/python/* dist/manifests/* dist/chart/*.tgz* dist/eip.yaml* dist/kubectl-eip.tar.gz* dist/packages/*

$(VENV)/bin/python:
	@.ci/need --venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.run: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.lock: $(VENV)/bin/python
	$(BIN)/pip install --quiet 'uv>=0.9,<1'
	@touch $@

$(VENV)/.build: $(VENV)/bin/python requirements-build.txt
	$(PYTHON) -m venv $(VENV)/build
	$(VENV)/build/bin/pip install --quiet --require-hashes --only-binary=:all: --requirement requirements-build.txt
	@touch $@

$(VENV)/.packages: $(VENV)/bin/python requirements-packages.txt
	$(PYTHON) -m venv $(VENV)/packages
	$(VENV)/packages/bin/pip install --quiet --require-hashes --only-binary=:all: --requirement requirements-packages.txt
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --editable '.[dev,fuzz]'
	@touch $@

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
