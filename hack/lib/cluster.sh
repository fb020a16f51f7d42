# The local cluster as a whole, and all that the scripts that bring it up share.
# shellcheck shell=bash

for part in machine memory jobs tools peers packages bill daemons control-plane node images scaffold story postgres teardown slipway earlier weather apart; do
  source "$ROOT/hack/lib/$part.sh"
done

# cluster_up MODE: with control-plane there is no node.
cluster_up() {
  tools_start
  step "What the cluster needs from the system" install jq=jq openssl=openssl curl=curl flock=util-linux
  [[ $1 == control-plane ]] || install containerd=containerd runc=runc \
    /usr/lib/cni/bridge=containernetworking-plugins iptables=iptables conntrack=conntrack ip=iproute2
  step "Kubernetes $KUBERNETES_VERSION, etcd, CoreDNS, Helm" tools_build
  claim
  [[ $EUID -ne 0 ]] || step "Network" network_up
  step "Control plane" control_plane_up
  [[ $1 == control-plane ]] || step "Node" node_up
  # What follows may take long, and another hack/up would be told so by the cluster itself.
  exec 9>&-
}

cluster_runs() { [[ $(owner) == "$STATE" ]] && daemon_find kube-apiserver >/dev/null; }

# with_manager cargo test …: Cargo builds no program for the tests of another crate, and these run the manager that they
# find beside them.
with_manager() { cargo build --release --locked --workspace --bin slipway-manager && "$@"; }
# with_runtime COMMAND...: the same of the runtime, for tests whose pods are processes.
with_runtime() { cargo build --release --locked --workspace --bin slipway-runtime && "$@"; }

# What tests that start an API server of their own need.
api_server_tools() {
  require_cargo
  step "What an API server needs from the system" install jq=jq openssl=openssl curl=curl flock=util-linux
  step "Kubernetes $KUBERNETES_VERSION and etcd" tools_build
  export KUBECTL=$STATE/bin/kubectl HELM=$STATE/bin/helm
}
