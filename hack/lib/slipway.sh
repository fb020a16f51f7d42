# Slipway on a cluster: the chart, the samples, a first answer. The same for the local cluster and for
# the current one; kubectl and helm are the pinned ones, KUBECONFIG says which cluster.
# shellcheck shell=bash

HELM_SETTINGS=()
REGISTRY=

current_cluster() {
  step "kubectl and Helm" tools_build
  mkdir -p "$STATE/images" "$LOGS"
  kubectl() { command "$STATE/bin/kubectl" "$@"; }
  local context
  context=$(kubectl config current-context 2>/dev/null) || die "There is no current kubeconfig context." \
    "Set KUBECONFIG, or let hack/up make a cluster of its own."
  say "        into the cluster of context $context, $(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}')"
  kubectl get --raw /readyz >/dev/null || die "That cluster does not answer."
  [[ -n $REGISTRY || ${#HELM_SETTINGS[@]} -gt 0 ]] || die "Its nodes must pull the images from somewhere:" \
    "--registry HOST/PATH pushes them there (log in with .local/bin/crane auth login), or" \
    "--set manager.image.repository=… and the same of state and runtime names images that are there."
}

slipway_up() {
  if [[ $1 == local ]]; then
    export KUBECONFIG=$LOCAL_KUBECONFIG
    step "Slipway's programs" job_wait programs
    step "Their images" job_wait images
    step "Images" "$ROOT/hack/images"
  elif [[ -n $REGISTRY ]]; then
    step "Images" "$ROOT/hack/images" --push "$REGISTRY"
  fi
  [[ $1 == current ]] || step "PostgreSQL with pgvector" postgres_up
  step "Slipway, by Helm" slipway_install "$1"
  step "A sample Team, Tools and an Agent" slipway_samples
  step "The Agent becomes Ready" slipway_agent_ready
  slipway_chat "$1"
}

slipway_install() {
  local settings=()
  [[ $1 == current && -z $REGISTRY ]] || mapfile -t settings < <(image_settings "$REGISTRY")
  [[ $1 == current ]] || mapfile -t -O ${#settings[@]} settings < <(postgres_settings)
  [[ $1 == current ]] || history_volume_up
  [[ $1 == current ]] || settings+=(--set "state.storage.storageClassName=-")
  # Nothing stands between the agents and PostgreSQL.
  [[ $1 == current ]] || settings+=(--set database.preparedStatements=true)
  # CoreDNS is a process of the node.
  [[ $1 == current ]] || settings+=(--set-json "agents.network.dns=[{\"ipBlock\": {\"cidr\": \"$NODE_ADDRESS/32\"}}]")
  # Tests try what agents can ask for.
  [[ $1 == current ]] || settings+=(--set-json 'agents.allowedPodSettings={"priorityClassNames": ["system-cluster-critical"],
    "runtimeClassNames": ["sandboxed"], "annotations": ["example.com/*"], "labels": ["example.com/*"], "tolerations": ["gpu"]}')
  # Tests bring the Gateway, and take it away again.
  [[ $1 == current ]] || settings+=(--set "gateway.name=public,gateway.namespace=e2e-gateways")
  # Tests put servers for tools on the machine itself.
  [[ $1 == current ]] || settings+=(--set "agents.egressAllow={$NODE_ADDRESS/32}")
  "$STATE/bin/helm" upgrade --install slipway "$ROOT" --namespace slipway-system --create-namespace \
    --wait --timeout 3m "${settings[@]}" ${HELM_SETTINGS[@]+"${HELM_SETTINGS[@]}"} >"$LOGS/helm.log" 2>&1 || {
    # A claim that stays Pending: the cluster has no default storage class, see state.storage in values.yaml.
    kubectl --namespace slipway-system get pods,persistentvolumeclaims >&2 || true
    kubectl --namespace slipway-system logs --selector app.kubernetes.io/instance=slipway --tail 5 >&2 || true
    die "Helm could not install Slipway:" "$(tail -n 5 "$LOGS/helm.log")"
  }
}

# The cluster makes no volumes: the history's is a folder of the machine, of the user of the image. When its claim was
# deleted, it waits for the next one of that name.
history_volume_up() {
  local manifest folder
  (umask 077 && mkdir -p "$STATE/history")
  command install -d -o 65532 -g 65532 -m 700 "$STATE/history/volume"
  folder=$(jq -n --arg folder "$STATE/history/volume" '$folder')
  manifest=$(<"$ROOT/config/local/history.yaml")
  kubectl apply --server-side -f - >/dev/null <<<"${manifest//FOLDER/"$folder"}"
  [[ $(kubectl get persistentvolume slipway-history -o 'jsonpath={.status.phase}') != Released ]] ||
    kubectl patch persistentvolume slipway-history --type merge \
      --patch '{"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}' >/dev/null
}

slipway_samples() {
  until_true 60 "The namespace of the default team" kubectl get namespace team-default
  kubectl apply --server-side -f config/samples/team.yaml -f config/samples/tool-builtin.yaml \
    -f config/samples/tool-http.yaml -f config/samples/agent.yaml | sed 's/^/        /'
}

slipway_agent_ready() {
  kubectl --namespace team-default wait --for=condition=Ready agent/hello --timeout=120s >/dev/null || {
    kubectl --namespace team-default describe agent hello | tail -n 30 >&2
    die "The Agent did not become Ready; its conditions and events above say why."
  }
}

# Through the Service: at its own address where this machine is the node, else forwarded.
slipway_chat() {
  local question='{"message": "Hello! Are you there?"}' answer address forward=
  if [[ $1 == local ]]; then
    address=$(kubectl --namespace team-default get service hello -o 'jsonpath={.spec.clusterIP}'):8000
  else
    "$STATE/bin/kubectl" --namespace team-default port-forward service/hello :8000 >"$LOGS/forward.log" 2>&1 &
    forward=$!
    until_true 20 "A forwarded port" grep -q '^Forwarding from 127' "$LOGS/forward.log"
    address=$(sed -n 's/^Forwarding from \(127[0-9.:]*\) .*/\1/p' "$LOGS/forward.log")
  fi
  answer=$(curl --silent --show-error --fail --max-time 30 --retry 5 --retry-all-errors --noproxy '*' \
    --header 'Content-Type: application/json' --data "$question" "http://$address/chat") || answer=
  [[ -z $forward ]] || kill "$forward" 2>/dev/null || true
  [[ -n $answer ]] || die "The agent gave no answer at http://$address/chat." \
    "Its log: kubectl --namespace team-default logs deployment/hello"
  say "" "hello was asked:  $question" "and answered:     $answer" "" "It took $SECONDS s. What to try next:"
  [[ $1 != local ]] || say "  export KUBECONFIG=$LOCAL_KUBECONFIG PATH=$STATE/bin:\$PATH"
  say "  kubectl --namespace team-default get agents,tools,agentreleases,pods" \
    "  kubectl --namespace team-default describe agent hello" \
    "  kubectl --namespace team-default scale agent hello --replicas=3" \
    "  kubectl explain agent.spec" \
    "  kubectl apply -f config/samples/skill.yaml -f config/samples/agent-full.yaml" \
    "  kubectl --namespace team-default port-forward service/hello 8000" \
    "  kubectl --namespace slipway-system port-forward service/slipway-rest 8090:80 # and docs/rest.md"
  [[ $1 != local ]] || say "  hack/down"
}
