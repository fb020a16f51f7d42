# What the machine must have, what apt can add to it, and what must be refused.
# shellcheck shell=bash

# install COMMAND=PACKAGE...: installs Debian's packages for the commands that are not there.
install() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || [[ -e ${pair%%=*} ]] || missing+=("${pair#*=}")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null ||
    die "These programs are missing: ${missing[*]} (names of Debian's packages)." \
      "Install them, or run this as root on Debian, where it installs them itself."
  say "        installing ${missing[*]}"
  mkdir -p "$LOGS"
  local log=$LOGS/apt-${missing[0]}.log
  apt_install "${missing[@]}" </dev/null >"$log" 2>&1 || die "apt-get could not install ${missing[*]}:" "$(tail -3 "$log")"
}

# With the lists of today. Where those name packages that are gone by now, with the lists of this moment.
apt_install() {
  local options=(-qy --no-install-recommends)
  export DEBIAN_FRONTEND=noninteractive
  apt_lists && apt_alone apt-get install "${options[@]}" "$@" ||
    { apt_alone apt-get update -q && apt_alone apt-get install "${options[@]}" "$@"; }
}

# apt_lists: fetches the lists of packages, once a day. A machine that is new has none yet.
apt_lists() { apt_alone apt_lists_fetch; }

apt_lists_fetch() {
  local stamp=$CACHE/packages/listed
  if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null && [[ -n $(find "$stamp" -mtime -1 2>/dev/null) ]]; then return; fi
  apt-get update -q && touch "$stamp"
}

# apt_alone COMMAND...: one at a time, as a second apt-get would not wait, but fail. What a package starts does not keep the lock.
apt_alone() {
  mkdir -p "$CACHE/packages"
  (flock 5 && "$@" 5>&-) 5>"$CACHE/packages/apt.lock"
}

require_go() {
  command -v go >/dev/null ||
    die "Go is missing; the cluster's programs are built with it." "Install Go 1.25 or newer and put it in PATH."
}

require_cargo() {
  command -v cargo >/dev/null ||
    die "cargo is missing." "Install Rust with rustup (1.95 or newer, with rustfmt and clippy)."
  command -v cc >/dev/null || install cc=gcc cc=libc6-dev
}

# A node needs more than a user's rights. Everything that is missing is told at once.
require_node() {
  local faults=()
  [[ $(uname -s) == Linux ]] || faults+=("This is $(uname -s); a node runs on Linux.")
  [[ $EUID -eq 0 ]] || faults+=("You are not root: a node makes cgroups, mounts and network namespaces.")
  [[ -r /proc/self/cgroup && -d /sys/fs/cgroup ]] && cgroup_folders >/dev/null ||
    faults+=("No cgroups are mounted in /sys/fs/cgroup.")
  if [[ $EUID -eq 0 && ${#faults[@]} -eq 0 ]]; then
    mkdir -p "$(cgroup_folders | head -1)/slipway" 2>/dev/null ||
      faults+=("/sys/fs/cgroup cannot be written to.")
  fi
  if [[ $EUID -eq 0 ]] && ! command -v apt-get >/dev/null; then
    local program
    for program in containerd runc iptables ip conntrack; do
      command -v "$program" >/dev/null || faults+=("$program is missing, and there is no apt-get to install it with.")
    done
  fi
  [[ ${#faults[@]} -eq 0 ]] || die "This machine cannot run a node:" "${faults[@]}" \
    "Instead: hack/up --current installs into the cluster of your current kubeconfig;" \
    "         hack/up --control-plane brings up an API server alone, without a node."
}

# The folders that a cgroup of ours must exist in: one per hierarchy with version 1, one with 2.
cgroup_folders() {
  if [[ $(stat -f -c %T /sys/fs/cgroup) == cgroup2fs ]]; then
    echo /sys/fs/cgroup
  else
    awk '$3 == "cgroup" {print $2}' /proc/mounts | grep ^/sys/fs/cgroup/
  fi
}
