# The node: containerd, kubelet, kube-proxy, CoreDNS, and the bridge that pods and node meet on.
# shellcheck shell=bash

BRIDGE=slipway0
CONTAINERD_SOCKET=$RUN/containerd.sock
PAUSE_IMAGE=slipway.dev/pause:1
# What tests on clusters name as an image of an agent's own.
OWN_IMAGE=slipway.dev/own-agent:1
# What the kubelet and kube-proxy change in the kernel, put back by hack/down.
SYSCTLS=(net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables net/ipv4/conf/all/route_localnet
  vm/overcommit_memory kernel/panic kernel/panic_on_oops)

containers() { ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io "$@"; }

# The bridge's own address is the node's: nothing listens on an address that is not ours. What is sent to a Service that
# kube-proxy does not know yet ends here, too, and does not leave the machine.
network_up() {
  [[ -d /sys/class/net/$BRIDGE ]] || ip link add "$BRIDGE" type bridge
  ip address replace "$NODE_ADDRESS/${POD_RANGE#*/}" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  ip route replace "$SERVICE_RANGE" dev "$BRIDGE"
}

sysctls_set() {
  local name
  modprobe -q br_netfilter 2>/dev/null || true
  if [[ ! -e $RUN/sysctls ]]; then
    for name in "${SYSCTLS[@]}"; do
      [[ ! -e /proc/sys/$name ]] || printf '%s %s\n' "$name" "$(cat "/proc/sys/$name")"
    done >"$RUN/sysctls.new"
    mv "$RUN/sysctls.new" "$RUN/sysctls"
  fi
  echo 1 >/proc/sys/net/ipv4/ip_forward
  [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]] ||
    die "The kernel has no br_netfilter: Services would not reach pods." "Instead: hack/up --current, or hack/up --control-plane."
  echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
}

# Where a firewall drops what it does not know, traffic between pods must still pass.
forwarding_up() {
  iptables -w -N SLIPWAY-FORWARD 2>/dev/null || true
  iptables -w -C SLIPWAY-FORWARD -i "$BRIDGE" -o "$BRIDGE" -j ACCEPT 2>/dev/null ||
    iptables -w -A SLIPWAY-FORWARD -i "$BRIDGE" -o "$BRIDGE" -j ACCEPT
  iptables -w -C FORWARD -j SLIPWAY-FORWARD 2>/dev/null || iptables -w -A FORWARD -j SLIPWAY-FORWARD
}

cgroups_up() {
  local folder
  for folder in $(cgroup_folders); do
    mkdir -p "$folder/slipway"
    # A child cpuset is born empty, and nothing can run in an empty one.
    if [[ -e $folder/slipway/cpuset.mems && -z $(cat "$folder/slipway/cpuset.mems") ]]; then
      cat "$folder/cpuset.mems" >"$folder/slipway/cpuset.mems" || true
      cat "$folder/cpuset.cpus" >"$folder/slipway/cpuset.cpus" || true
    fi
  done
}

configure_containerd() {
  local snapshotter=overlayfs
  # An overlay cannot lie on an overlay, as in a container.
  [[ $(stat -f -c %T "$STATE") != overlayfs ]] || snapshotter=native
  cat >"$STATE/config/containerd.toml" <<END
version = 2
root = "$STATE/containerd"
state = "$RUN/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "$CONTAINERD_SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  # Not every root may lower an OOM score.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$STATE/config/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "$RUN/runc"
END
  mkdir -p "$STATE/config/cni"
  cat >"$STATE/config/cni/slipway.conflist" <<END
{
  "cniVersion": "1.0.0",
  "name": "slipway",
  "plugins": [
    {
      "type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "$RUN/addresses",
        "ranges": [[{"subnet": "$POD_RANGE"}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
END
}

configure_kubelet() {
  cat >"$STATE/config/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_ADDRESS
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet.crt
tlsPrivateKeyFile: $PKI/kubelet.key
healthzBindAddress: 127.0.0.1
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
cgroupDriver: cgroupfs
cgroupRoot: /slipway
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
# A full disk or little memory is the machine's matter; pods and images stay.
evictionHard: {}
imageGCHighThresholdPercent: 100
podLogsDir: $STATE/pod-logs
clusterDomain: cluster.local
clusterDNS: [$NODE_ADDRESS]
# The machine's own search domains would make every lookup of a pod ask more names.
resolvConf: $STATE/config/resolv.conf
maxPods: 200
registryPullQPS: 0
eventRecordQPS: 0
serializeImagePulls: false
shutdownGracePeriod: 0s
END
  echo "nameserver $NODE_ADDRESS" >"$STATE/config/resolv.conf"
}

configure_coredns() {
  cat >"$STATE/config/coredns.Corefile" <<END
cluster.local in-addr.arpa ip6.arpa {
  bind $NODE_ADDRESS
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $STATE/config/coredns.kubeconfig
    pods verified
    ttl 5
  }
  cache 5
  loadbalance
  errors
}
# The cluster has no way out: a name of the outside is told so at once.
. {
  bind $NODE_ADDRESS
  template ANY ANY {
    rcode NXDOMAIN
  }
}
END
}

# What CoreDNS may read: the API server has no role for it.
coredns_rights() {
  kubectl apply --server-side --force-conflicts -f - >/dev/null <<'END'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
  - {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:coredns"}]
END
}

# Sockets have short names only: the kubelet sees its folder in /run, however deep the clone lies.
kubelet_folder_up() {
  mkdir -p "$STATE/kubelet" "$RUN/kubelet" "$STATE/pod-logs"
  mountpoint -q "$RUN/kubelet" || mount --bind "$STATE/kubelet" "$RUN/kubelet"
  mount --make-rshared "$RUN/kubelet"
}

start_containerd() {
  daemon_start "$(command -v containerd)" --config "$STATE/config/containerd.toml" --log-level warn
}

start_kubelet() {
  daemon_start "$TOOLS/kubelet" --v=1 --config "$STATE/config/kubelet.yaml" --root-dir "$RUN/kubelet" \
    --kubeconfig "$STATE/config/kubelet.kubeconfig" --hostname-override local --node-ip "$NODE_ADDRESS"
}

start_kube_proxy() {
  daemon_start "$TOOLS/kube-proxy" --v=1 --kubeconfig "$STATE/config/kube-proxy.kubeconfig" --hostname-override local \
    --proxy-mode iptables --cluster-cidr "$POD_RANGE" --nodeport-addresses "$NODE_ADDRESS/32" \
    --iptables-localhost-nodeports=false --iptables-min-sync-period 100ms \
    --healthz-bind-address "$NODE_ADDRESS:10256" --metrics-bind-address 127.0.0.1:10249 \
    --conntrack-max-per-core 0 --conntrack-min 0 \
    --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s
}

start_coredns() {
  daemon_start "$TOOLS/coredns" -conf "$STATE/config/coredns.Corefile" -dns.port 53
}

containerd_ready() {
  daemon_expect containerd
  containers version
}

# Ready, and heard of since this script began: after a crash the old word still stands for a while.
node_ready() {
  daemon_expect kubelet
  kubectl wait --for=condition=Ready node/local --timeout=1s
  [[ $(kubectl -n kube-node-lease get lease local -o 'jsonpath={.spec.renewTime}') > $1 ]]
}

node_up() {
  local began
  began=$(date -u -d '-10 seconds' +%FT%T)
  daemon_find kubelet >/dev/null || began=$(date -u +%FT%T)
  sysctls_set
  cgroups_up
  forwarding_up
  configure_containerd
  configure_kubelet
  configure_coredns
  kubelet_folder_up
  start_containerd
  until_true 30 "A listening containerd" containerd_ready
  image_pause
  start_kubelet
  start_kube_proxy
  coredns_rights
  start_coredns
  until_true 60 "A ready node" node_ready "$began"
  daemon_expect kube-proxy
  daemon_expect coredns
}
