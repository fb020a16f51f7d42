#!/bin/sh
# Builds the image that deploy/own-image runs, and pushes it if its name has a registry. IMAGE names another one.
set -eu
cd "$(dirname "$0")"
image=${IMAGE:-{{image}}}
builder=$(command -v podman || command -v docker) || {
  echo "Neither podman nor docker is here; one of them builds the image." >&2
  exit 1
}
"$builder" build -f Containerfile -t "$image" .
case $image in
  */*) "$builder" push "$image" ;;
  *) echo "$image is not pushed: it names no registry. A node that has it runs it." ;;
esac
