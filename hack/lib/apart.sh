# An etcd and an API server on loopback beside any cluster: no root, no node, and a folder of their own. Whoever sources this
# works with that control plane alone from `apart` on.
# shellcheck shell=bash

# apart NAME PORT: the folder .local/NAME, the API server's port, and etcd's two behind it.
apart() {
  STATE=$STATE/$1
  LOGS=$STATE/logs
  RUN=$STATE/run
  PKI=$STATE/pki
  LOCAL_KUBECONFIG=$STATE/kubeconfig
  API_ADDRESS=127.0.0.1 API_PORT=$2
  API_URL=https://$API_ADDRESS:$API_PORT
  ETCD_URL=https://127.0.0.1:$(($2 + 1))
  ETCD_PEER_URL=http://127.0.0.1:$(($2 + 2))
}

# What an earlier run left is cleared, and at the end all of this one. Everything that it started carries the mark of its
# folder, and nothing else does.
apart_begin() {
  mkdir -p "${STATE%/*}"
  exec 9>"$STATE.lock"
  flock -n 9 || die "Another ${0##*/} is at work here." "Wait for it to end, then try again."
  stop_marked "$STATE:"
  rm -rf --one-file-system "$STATE"
  mkdir -p "$STATE/config" "$LOGS"
  trap apart_end EXIT
  trap 'exit 130' INT TERM
}

apart_end() {
  local code=$?
  trap - EXIT INT TERM
  jobs_end
  [[ $code -eq 0 ]] || logs_end 5 >&2
  stop_marked "$STATE:"
  rm -rf --one-file-system "$STATE"
  exit "$code"
}

apart_up() {
  TOOLS=$(tools_folder)
  certificates
  start_etcd
  start_api_server
  until_true 60 "A ready API server" api_ready
}
