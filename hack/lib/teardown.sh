# Taking a cluster down, whole or half, ours or what a dead one left, in the order that leaves nothing.
# shellcheck shell=bash

# The clone that the machine's one cluster belongs to.
owner() { cat "$RUN/owner" 2>/dev/null || true; }

# claim: makes this clone the owner. What a dead cluster left is cleared; a living one is not touched.
claim() {
  mkdir -p "$RUN" "$STATE/config" "$STATE/images" "$LOGS"
  exec 9>"$RUN/lock"
  flock -n 9 || die "Another hack/up or hack/down is at work on this machine." "Wait for it to end, then try again."
  local other id
  other=$(owner)
  id=$(cat "$RUN/id" 2>/dev/null || true)
  if [[ -n $other && ($other != "$STATE" || $id != "$(cat "$STATE/id" 2>/dev/null || true)") ]]; then
    if [[ $other != "$STATE" && -d ${other%/.local} ]] && marked "$other:" | grep -Ev ':containerd:' | grep -q .; then
      die "A cluster of another clone runs on this machine: ${other%/.local}" "To stop it: ${other%/.local}/hack/down"
    fi
    step "Clearing what an earlier cluster of ${other%/.local} left" teardown "$other"
  fi
  [[ -s $STATE/id ]] || cat /proc/sys/kernel/random/uuid >"$STATE/id"
  cp "$STATE/id" "$RUN/id"
  printf '%s\n' "$STATE" >"$RUN/owner.new"
  mv "$RUN/owner.new" "$RUN/owner"
}

# teardown STATE: everything on the machine that belongs to the cluster with that folder.
teardown() {
  local state=$1 name
  # The kubelet first, else it starts pods anew.
  for name in kubelet kube-proxy coredns kube-scheduler kube-controller-manager kube-apiserver etcd; do
    # shellcheck disable=SC2046
    stop_marked "$state:$name:"
  done
  [[ $EUID -ne 0 ]] || node_down "$state"
  stop_marked "$state:"
  rm -rf "${RUN:?}"/{owner,id,runc,containerd,containerd.sock*,addresses,kubelet,sysctls}
}

stop_marked() {
  local pids
  mapfile -t pids < <(marked "$1" | cut -d' ' -f1)
  [[ ${#pids[@]} -eq 0 ]] || stop_pids "${pids[@]}"
}

node_down() {
  local state=$1
  stop_pods "$state"
  stop_marked "$state:containerd:"
  unmount "$state/" "$RUN/"
  network_down
  cgroups_down
  leftovers_down
  sysctls_restore
}

# Pods and their shims, again until none is left: a shim may be starting one.
stop_pods() {
  local round pids
  for round in 1 2 3 4 5 6 7 8 9 10; do
    mapfile -t pids < <(
      marked "$1:containerd:" | cut -d' ' -f1 | while read -r pid; do
        [[ $(readlink "/proc/$pid/exe") == */containerd ]] || echo "$pid"
      done
      cgroup_pids
    )
    [[ ${#pids[@]} -gt 0 ]] || return 0
    kill -KILL "${pids[@]}" 2>/dev/null || true
    sleep "0.$round"
  done
  die "Pods do not end: processes ${pids[*]}."
}

cgroup_pids() {
  local folder
  for folder in $(cgroup_folders); do
    [[ ! -d $folder/slipway ]] || find "$folder/slipway" -name cgroup.procs -exec cat {} + 2>/dev/null
  done | sort -nu | while read -r pid; do
    ! alive "$pid" || echo "$pid"
  done
}

# unmount PREFIX...: deepest first, lazily.
unmount() {
  local prefix round
  for round in 1 2 3; do
    for prefix in "$@"; do
      awk '{print $5}' /proc/self/mountinfo | while read -r mount; do
        mount=$(printf '%b' "$mount")
        [[ $mount != "$prefix"* ]] || printf '%s\n' "$mount"
      done | sort -r | while read -r mount; do umount -l "$mount" 2>/dev/null || true; done
    done
  done
}

network_down() {
  local port namespace
  if [[ -d /sys/class/net/$BRIDGE ]]; then
    for namespace in $(ip netns list 2>/dev/null | awk '/^cni-/ {print $1}'); do
      ! ip netns exec "$namespace" ip -4 -o address 2>/dev/null | grep -qF " ${POD_RANGE%.*.*}." || ip netns delete "$namespace" || true
    done
    for port in "/sys/class/net/$BRIDGE/brif/"*; do
      [[ ! -e $port ]] || ip link delete "${port##*/}" 2>/dev/null || true
    done
    ip link delete "$BRIDGE" 2>/dev/null || true
  fi
  # The tools may not be there: the chains are taken out by their names.
  local family
  for family in iptables ip6tables; do
    ! command -v $family-save >/dev/null || chains_down $family 2>/dev/null || true
  done
}

chains_down() {
  local ours='(KUBE|CNI|SLIPWAY)-'
  "$1-save" | grep -qE "^:$ours" || return 0
  "$1-save" | grep -vE "^(:|-[AI] )$ours|-j $ours" | "$1-restore" -w 5
}

cgroups_down() {
  local folder
  for folder in $(cgroup_folders); do
    [[ ! -d $folder/slipway ]] || find "$folder/slipway" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}

# What containerd, its shims, the CNI plugins and the kubelet keep in places of their own choosing.
leftovers_down() {
  local file
  rm -f /var/lib/cni/results/slipway-*
  rmdir /var/lib/cni/results /var/lib/cni 2>/dev/null || true
  for file in /run/containerd/s/*; do
    [[ ! -S $file ]] || grep -qF " $file" /proc/net/unix || rm -f "$file"
  done
  find /var/log/containers -xtype l -delete 2>/dev/null || true
  rmdir /var/log/containers /run/containerd/s 2>/dev/null || true
  # The kubelet's socket for device plugins, unless another kubelet listens there.
  file=/var/lib/kubelet/device-plugins
  if [[ -d $file ]] && ! grep -qF " $file/" /proc/net/unix; then
    rm -rf "$file"
    rmdir /var/lib/kubelet 2>/dev/null || true
  fi
}

sysctls_restore() {
  local name value
  [[ -e $RUN/sysctls ]] || return 0
  while read -r name value; do
    echo "$value" 2>/dev/null >"/proc/sys/$name" || true
  done <"$RUN/sysctls"
}
