# Bad weather between the installed manager and its API server, for tests: a door of our own, where requests are refused,
# slow or done in secret, and watches break off or tell things twice.
# shellcheck shell=bash

# Where pods come in, by TLS; the door itself; and what hands on to the API server, with the callers' own tokens.
WEATHER_PORTS=(26460 26461 26462)

# weather_up: the manager goes through the door from now on.
weather_up() {
  local front=${WEATHER_PORTS[0]} door=127.0.0.1:${WEATHER_PORTS[1]} behind=${WEATHER_PORTS[2]} way
  install socat=socat
  in_turn cargo build --quiet --release --locked --workspace --bin slipway-weather </dev/null
  # A token of one's own goes before this one, so that everybody is who he proves to be.
  jq -n --arg server "$API_URL" --arg authority "$PKI/ca.crt" '{apiVersion: "v1", kind: "Config", "current-context": "a",
    clusters: [{name: "a", cluster: {server: $server, "certificate-authority": $authority}}],
    users: [{name: "a", user: {token: "nobody"}}], contexts: [{name: "a", context: {cluster: "a", user: "a"}}]}' >"$STATE/config/kubectl.weather"
  daemon_start "$STATE/bin/kubectl" --kubeconfig "$STATE/config/kubectl.weather" proxy --address 127.0.0.1 --port "$behind" '--accept-hosts=.*'
  daemon_start "$(binaries)/slipway-weather" "$door" "127.0.0.1:$behind"
  daemon_start "$(command -v socat)" \
    "OPENSSL-LISTEN:$front,bind=$NODE_ADDRESS,reuseaddr,fork,nodelay,verify=0,cert=$PKI/kube-apiserver.crt,key=$PKI/kube-apiserver.key" \
    "TCP:$door,nodelay"
  until_true 20 "The door to the API server" curl --silent --noproxy '*' --cacert "$PKI/ca.crt" "https://$NODE_ADDRESS:$front/version"
  way=$(jq -cn --arg host "$NODE_ADDRESS" --arg port "$front" \
    '[{name: "KUBERNETES_SERVICE_HOST", value: $host}, {name: "KUBERNETES_SERVICE_PORT", value: $port}]')
  HELM_SETTINGS=(--set-json "manager.extraEnv=$way" --set-json "state.extraEnv=$way")
  slipway_install local
}

# weather_down: says what there was, and lets the manager take its usual way.
weather_down() {
  say "        $(tail -n 1 "$LOGS/slipway-weather.log")"
  HELM_SETTINGS=()
  slipway_install local
  daemon_stop socat
  daemon_stop slipway-weather
  daemon_stop kubectl
}
