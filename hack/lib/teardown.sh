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
    if [[ $other != "$STATE" && -d ${other%/.local} ]] && [[ -n $(marked "$other:" | grep -v ":containerd:") ]]; then
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
  leftovers_down "$state"
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
      [[ $(ip netns exec "$namespace" ip -4 -o address 2>/dev/null) != *" ${POD_RANGE%.*.*}."* ]] || ip netns delete "$namespace" || true
    done
    for port in "/sys/class/net/$BRIDGE/brif/"*; do
      [[ ! -e $port ]] || ip link delete "${port##*/}" 2>/dev/null || true
    done
    ip link delete "$BRIDGE" 2>/dev/null || true
  fi
  local family
  for family in iptables ip6tables; do
    ! command -v $family-save >/dev/null || chains_down $family || true
  done
}

# Out of each table: the jumps to chains of ours, their rules, the chains; nobody else's rules.
chains_down() {
  "$1-save" 2>/dev/null | awk '
    function ours(chain) { return chain ~ /^(KUBE|CNI|SLIPWAY)-/ }
    /^\*/ { table = $0; count = 0; jumps = "" }
    /^:/ && ours(substr($1, 2)) { chains[++count] = substr($1, 2) }
    /^-A/ && !ours($2) {
      for (i = 3; i < NF; i++) if ($i == "-j" && ours($(i + 1))) jumps = jumps "-D" substr($0, 3) "\n"
    }
    /^COMMIT/ && count {
      printf "%s\n%s", table, jumps
      for (i = 1; i <= count; i++) print "-F " chains[i]
      for (i = 1; i <= count; i++) print "-X " chains[i]
      print "COMMIT"
    }' | "$1-restore" --noflush -w 5
}

# runc makes some in hierarchies that the kubelet does not use.
cgroups_down() {
  find /sys/fs/cgroup -maxdepth 2 -type d -name slipway -exec find {} -depth -type d -delete \; 2>/dev/null || true
}

# What containerd, its shims, the CNI plugins and the kubelet keep in places of their own choosing.
leftovers_down() {
  local state=$1 file id
  for file in /var/lib/cni/results/slipway-*; do
    id=${file##*/slipway-}
    rm -f "$file" "/var/lib/cni/results/cni-loopback-${id%-*}-lo"
  done
  rmdir /var/lib/cni/results /var/lib/cni 2>/dev/null || true
  for file in /run/containerd/s/*; do
    [[ ! -S $file ]] || grep -qF " $file" /proc/net/unix || rm -f "$file"
  done
  find /var/log/containers -type l \( -lname "$state/*" -o -xtype l \) -delete 2>/dev/null || true
  rmdir /var/log/containers /run/containerd/s /run/containerd 2>/dev/null || true
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
