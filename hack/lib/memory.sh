# Files of tests in memory. Tests write thousands of small ones and keep none: the folder of a PostgreSQL is laid out in memory in
# a fourteenth of the time that it takes on a disk. Where there is not enough memory, they lie on the disk.
# shellcheck shell=bash

# memory_begin: temporary files of what this script starts, but for the cluster's daemons, which may outlive it; these have more
# room for garbage.
memory_begin() {
  local old
  # Of scripts that were killed.
  for old in /dev/shm/slipway-tests-*; do
    [[ ! -O $old ]] || alive "${old##*-}" || rm -rf --one-file-system "$old"
  done
  [[ -z ${TMPDIR:-} ]] && memory_has_room && mkdir "/dev/shm/slipway-tests-$$" || return 0
  export TMPDIR=/dev/shm/slipway-tests-$$
  # An API server spends a seventh of its time on collecting garbage, and less where more of it may lie.
  export DAEMON_VARIABLES='GOGC=400 GOMEMLIMIT=2GiB'
  # Servers of tests run as other users.
  chmod 1777 "$TMPDIR"
}

memory_end() { rm -rf --one-file-system "/dev/shm/slipway-tests-$$"; }

# memory_node: the folders of the node, which a cluster that does not run yet begins with; hack/down unmounts them.
memory_node() {
  local name
  memory_has_room && ! cluster_runs || return 0
  for name in containerd kubelet; do
    mkdir -p "$STATE/$name"
    mountpoint -q "$STATE/$name" || mount -t tmpfs -o mode=755,size=25% slipway "$STATE/$name"
  done
}

# A run was seen to take 8 GiB at the most, and 5 of files alone at another moment.
memory_has_room() {
  awk '$2 == "/dev/shm" && $4 !~ /noexec/ {found = 1} END {exit !found}' /proc/mounts &&
    awk '/^MemAvailable:/ {exit !($2 > 16 * 1024 * 1024)}' /proc/meminfo &&
    [[ -w /dev/shm && $(df --output=avail --block-size=1G /dev/shm | tail -1) -ge 6 ]]
}
