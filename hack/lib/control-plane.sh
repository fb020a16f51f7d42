# etcd, the API server, the controller manager and the scheduler; certificates and kubeconfigs.
# shellcheck shell=bash

NODE_ADDRESS=10.213.64.1
POD_RANGE=10.213.64.0/18
# Room for the Services of ten thousand agents and more.
SERVICE_RANGE=10.213.128.0/17
API_PORT=26443
ETCD_URL=https://127.0.0.1:22379
ETCD_PEER_URL=http://127.0.0.1:22380
PKI=$STATE/pki
CONTROLLER_OPTIONS=()
if [[ $EUID -eq 0 ]]; then API_ADDRESS=$NODE_ADDRESS; else API_ADDRESS=127.0.0.1; fi
API_URL=https://$API_ADDRESS:$API_PORT

kubectl() { command "$STATE/bin/kubectl" --kubeconfig "$LOCAL_KUBECONFIG" "$@"; }

authority() {
  [[ -s $PKI/$1.crt ]] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -subj "/CN=slipway-$1" -addext keyUsage=critical,keyCertSign -keyout "$PKI/$1.key" -out "$PKI/$1.crt" 2>/dev/null
}

# certificate AUTHORITY NAME SUBJECT [ALTERNATIVE NAMES]
certificate() {
  [[ -s $PKI/$2.crt ]] || openssl req -x509 -CA "$PKI/$1.crt" -CAkey "$PKI/$1.key" \
    -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "$3" \
    -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=clientAuth,serverAuth \
    -addext "subjectAltName=${4:-DNS:$2}" -keyout "$PKI/$2.key" -out "$PKI/$2.crt" 2>/dev/null
}

certificates() {
  local node=IP:$NODE_ADDRESS,IP:127.0.0.1,DNS:localhost
  (umask 077 && mkdir -p "$PKI")
  authority ca
  authority etcd-ca
  authority front-proxy-ca
  certificate etcd-ca etcd /CN=etcd IP:127.0.0.1
  certificate etcd-ca etcd-client /CN=kube-apiserver
  certificate front-proxy-ca front-proxy /CN=front-proxy
  certificate ca kube-apiserver /CN=kube-apiserver \
    "$node,IP:10.213.128.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  certificate ca kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  certificate ca admin /O=system:masters/CN=admin
  certificate ca kube-controller-manager /CN=system:kube-controller-manager
  certificate ca kube-scheduler /CN=system:kube-scheduler
  certificate ca kubelet /O=system:nodes/CN=system:node:local "$node,DNS:local"
  certificate ca kube-proxy /CN=system:kube-proxy
  certificate ca coredns /CN=system:coredns
  [[ -s $PKI/service-account.key ]] || openssl genrsa -out "$PKI/service-account.key" 2048 2>/dev/null
  kubeconfig admin "$LOCAL_KUBECONFIG"
  local name
  for name in kube-controller-manager kube-scheduler kubelet kube-proxy coredns; do
    kubeconfig "$name" "$STATE/config/$name.kubeconfig"
  done
}

# kubeconfig NAME FILE: written whole or not at all.
kubeconfig() {
  (
    umask 077
    mkdir -p "${2%/*}"
    cat >"$2.new" <<END
apiVersion: v1
kind: Config
current-context: slipway-local
clusters:
  - name: slipway-local
    cluster:
      server: $API_URL
      certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")
users:
  - name: $1
    user:
      client-certificate-data: $(base64 -w0 "$PKI/$1.crt")
      client-key-data: $(base64 -w0 "$PKI/$1.key")
contexts:
  - name: slipway-local
    context: {cluster: slipway-local, user: $1}
END
    mv "$2.new" "$2"
  )
}

# The cluster's data is for trying things: etcd need not wait for the disk.
start_etcd() {
  daemon_start "$TOOLS/etcd" --name local --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "$ETCD_URL" --advertise-client-urls "$ETCD_URL" --listen-peer-urls "$ETCD_PEER_URL" \
    --initial-advertise-peer-urls "$ETCD_PEER_URL" --initial-cluster "local=$ETCD_PEER_URL" \
    --client-cert-auth --trusted-ca-file "$PKI/etcd-ca.crt" --cert-file "$PKI/etcd.crt" --key-file "$PKI/etcd.key"
}

start_api_server() {
  daemon_start "$TOOLS/kube-apiserver" --v=1 \
    --bind-address "$API_ADDRESS" --advertise-address "$NODE_ADDRESS" --secure-port "$API_PORT" \
    --etcd-servers "$ETCD_URL" --etcd-cafile "$PKI/etcd-ca.crt" \
    --etcd-certfile "$PKI/etcd-client.crt" --etcd-keyfile "$PKI/etcd-client.key" \
    --tls-cert-file "$PKI/kube-apiserver.crt" --tls-private-key-file "$PKI/kube-apiserver.key" \
    --client-ca-file "$PKI/ca.crt" --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$PKI/service-account.key" \
    --service-account-signing-key-file "$PKI/service-account.key" \
    --service-cluster-ip-range "$SERVICE_RANGE" --allow-privileged \
    --kubelet-certificate-authority "$PKI/ca.crt" --kubelet-preferred-address-types InternalIP \
    --kubelet-client-certificate "$PKI/kubelet-client.crt" --kubelet-client-key "$PKI/kubelet-client.key" \
    --requestheader-client-ca-file "$PKI/front-proxy-ca.crt" --requestheader-allowed-names front-proxy \
    --requestheader-extra-headers-prefix X-Remote-Extra- --requestheader-group-headers X-Remote-Group \
    --requestheader-username-headers X-Remote-User --enable-aggregator-routing \
    --proxy-client-cert-file "$PKI/front-proxy.crt" --proxy-client-key-file "$PKI/front-proxy.key"
}

# The default limit on its requests makes hundreds of Deployments take minutes instead of seconds.
start_controller_manager() {
  daemon_start "$TOOLS/kube-controller-manager" --v=1 --bind-address 127.0.0.1 --leader-elect=false \
    --kubeconfig "$STATE/config/kube-controller-manager.kubeconfig" \
    --authentication-kubeconfig "$STATE/config/kube-controller-manager.kubeconfig" \
    --authorization-kubeconfig "$STATE/config/kube-controller-manager.kubeconfig" \
    --use-service-account-credentials --service-account-private-key-file "$PKI/service-account.key" \
    --root-ca-file "$PKI/ca.crt" --cluster-signing-cert-file "$PKI/ca.crt" --cluster-signing-key-file "$PKI/ca.key" \
    --kube-api-qps 500 --kube-api-burst 1000 "${CONTROLLER_OPTIONS[@]}"
}

start_scheduler() {
  daemon_start "$TOOLS/kube-scheduler" --v=1 --bind-address 127.0.0.1 --leader-elect=false \
    --kubeconfig "$STATE/config/kube-scheduler.kubeconfig" \
    --authentication-kubeconfig "$STATE/config/kube-scheduler.kubeconfig" \
    --authorization-kubeconfig "$STATE/config/kube-scheduler.kubeconfig"
}

api_ready() {
  daemon_expect etcd
  daemon_expect kube-apiserver
  kubectl get --raw /readyz
}

control_plane_up() {
  TOOLS=$(tools_folder)
  certificates
  start_etcd
  start_api_server
  until_true 60 "A ready API server" api_ready
  start_controller_manager
  start_scheduler
  until_true 60 "The default service account" kubectl -n default get serviceaccount default
}
