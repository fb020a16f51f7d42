# An etcd and an API server on loopback beside any cluster: no root, no node, and a folder of their own. A script that sources this
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

# Whether nobody else works in this folder, and keeps it so.
apart_claim() {
  mkdir -p "${STATE%/*}"
  exec 9>"$STATE.lock"
  flock -n 9
}

# apart_listens PORT: somebody does.
apart_listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# apart_free NAME PORT: the first place of several in which nobody works, and whose ports nobody has, as another clone's
# may; their ports are ten apart.
apart_free() {
  local state=$STATE place
  for place in 0 1 2 3 4 5; do
    STATE=$state
    apart "$1-$place" $(($2 + 10 * place))
    apart_claim || continue
    # What an interrupted run left here goes before its ports are looked at.
    stop_marked "$STATE:"
    apart_listens "$API_PORT" || apart_listens $((API_PORT + 1)) || apart_listens $((API_PORT + 2)) || return 0
  done
  die "As many ${0##*/} are at work here as there are places." "Wait for one to end, then try again."
}

# What an earlier run left is cleared, and at the end all of this one. Everything that it started carries the mark of its
# folder, and nothing else does.
apart_begin() {
  stop_marked "$STATE:"
  rm -rf --one-file-system "$STATE"
  mkdir -p "$STATE/config" "$LOGS"
  trap apart_end EXIT
  trap 'exit 130' INT TERM
}

apart_end() {
  local code=$?
  trap - EXIT INT TERM
  # The reader of stdout may have been killed.
  trap '' PIPE
  jobs_end
  [[ $code -eq 0 ]] || { aloud && logs_end 5; } || true
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
