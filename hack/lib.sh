# Shared by the scripts in hack/: where things lie, and how progress and refusals are told.
# shellcheck shell=bash disable=SC2034

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
STATE=$ROOT/.local
LOGS=$STATE/logs
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/slipway
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CACHE/target}

# Programs do not tell where they were compiled, and the same sources give the same programs everywhere. Cargo joins
# this with what .cargo/config.toml has, which cannot name a machine's folders.
export CARGO_BUILD_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/crates --remap-path-prefix=$CARGO_TARGET_DIR=/target"

# Where cargo puts programs.
binaries() { printf '%s\n' "$CARGO_TARGET_DIR/$(rustc -vV | sed -n 's/^host: //p')/release"; }

# What a machine has only once (the bridge, its addresses, sockets) belongs to one cluster at a
# time; /run/slipway says whose. Without root there is no node, and nothing machine-wide.
if [[ $EUID -eq 0 ]]; then RUN=/run/slipway; else RUN=$STATE/run; fi

LOCAL_KUBECONFIG=$STATE/kubeconfig

say() { printf '%s\n' "$@"; }

# What dies within a silenced command still says why, through descriptor 8.
exec 8>&2
die() {
  printf 'error: %s\n' "$1" >&8
  shift
  [[ $# -eq 0 ]] || printf '       %s\n' "$@" >&8
  exit 1
}

# For what runs when a script ends, which may be within a silenced command: from here on it is heard, on standard error.
aloud() { exec >&8 2>&8; }

# step TEXT COMMAND...: one line of progress, with the time since the script began.
step() {
  local text=$1 began=$SECONDS
  shift
  printf '[%4ds] %s\n' "$SECONDS" "$text"
  "$@"
  ((SECONDS - began < 5)) || printf '        … took %d s\n' $((SECONDS - began))
}

# until_true SECONDS WHAT COMMAND...: waits for a condition, and names it when it does not come.
until_true() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || die "$what did not come about in time." "Logs lie in $LOGS."
    sleep 0.2
  done
}

# usage: prints the comment at the top of the script that calls it.
usage() {
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p;}' "$0"
}

source "$ROOT/hack/lib/clones.sh"
