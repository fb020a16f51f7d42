#!/bin/sh
# What a change has to pass: the tests in an environment of their own, the image where there is a builder, and the manifests
# where there is a cluster.
set -eu
cd "$(dirname "$0")"
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
.venv/bin/python -m unittest
if builder=$(command -v podman || command -v docker) && "$builder" info >/dev/null 2>&1; then
  "$builder" build -f Containerfile -t {{slug}}:ci .
fi
if command -v kubectl >/dev/null && kubectl version >/dev/null 2>&1; then
  kubectl apply --dry-run=server -k deploy
fi
