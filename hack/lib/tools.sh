# The programs that hack/tools pins, built once per user and linked into .local/bin.
# shellcheck shell=bash

KUBERNETES_VERSION=v1.35.4
TOOLS_PACKAGES=(
  k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl}
  go.etcd.io/etcd/server/v3 helm.sh/helm/v3/cmd/helm
  github.com/google/go-containerregistry/cmd/crane github.com/yannh/kubeconform/cmd/kubeconform
  ./coredns ./pause
)
TOOLS_LDFLAGS="-s -w
  -X k8s.io/component-base/version.gitVersion=$KUBERNETES_VERSION
  -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35
  -X k8s.io/component-base/version.gitTreeState=clean"
# Which Kubernetes `helm template` renders for, and which Helm it says it is. Without these flags it is v1.20, which the chart refuses.
HELM_LDFLAGS="-s -w
  -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=35
  -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=35
  -X helm.sh/helm/v3/internal/version.version=$(sed -n 's|^\thelm.sh/helm/v3 \(v[0-9.]*\).*|\1|p' "$ROOT/hack/tools/go.mod")
  -X helm.sh/helm/v3/internal/version.gitTreeState=clean"

# A second clone with the same pins finds the same folder.
tools_folder() {
  { cat "$ROOT"/hack/tools/{go.mod,go.sum,coredns/main.go,pause/main.go} && printf '%s\n' "${TOOLS_PACKAGES[@]}" "$TOOLS_LDFLAGS" "$HELM_LDFLAGS"; } |
    sha256sum | cut -c1-16 | sed "s|^|$CACHE/tools/|"
}

# What tests with a GitOps controller need beside: modules of their own, and a folder, so that nothing else is built anew.
gitops_folder() {
  cat "$ROOT"/hack/tools/gitops/{,health/}go.{mod,sum} "$ROOT/hack/tools/gitops/health/main.go" |
    sha256sum | cut -c1-16 | sed "s|^|$CACHE/tools/gitops-|"
}

# What tests of autoscaling need beside, in the same way.
metrics_folder() {
  cat "$ROOT"/hack/tools/metrics/go.{mod,sum} | sha256sum | cut -c1-16 | sed "s|^|$CACHE/tools/metrics-|"
}

# What tests of canaries that others roll out need beside, in the same way.
flagger_folder() {
  cat "$ROOT"/hack/tools/flagger/{go.mod,go.sum,main.go} | sha256sum | cut -c1-16 | sed "s|^|$CACHE/tools/flagger-|"
}

# What tests of Gateways and meshes need beside: a Gateway, and the kinds' definitions.
gateway_folder() {
  { cat "$ROOT"/hack/tools/gateway/{go.mod,go.sum,requirements.txt} && uname -m; } | sha256sum | cut -c1-16 | sed "s|^|$CACHE/tools/gateway-|"
}

# Begun early, the tools are compiled beside what else there is to do.
tools_start() {
  [[ -d $(tools_folder) ]] || { require_go && job tools tools_make "$(tools_folder)" tools_compile; }
}

tools_build() {
  tools_start
  job_wait tools
  mkdir -p "$STATE/bin"
  find "$STATE/bin" -type l ! -lname "$(tools_folder)/*" ! -lname "$(gitops_folder)/*" ! -lname "$(metrics_folder)/*" \
    ! -lname "$(flagger_folder)/*" -delete
  tools_link "$(tools_folder)"
}

# tools_link FOLDER: what is linked already stays as it is, since somebody may be running it at this moment.
tools_link() {
  local program
  for program in "$1"/*; do
    [[ $(readlink "$STATE/bin/${program##*/}") == "$program" ]] || ln -sfn "$program" "$STATE/bin/"
  done
}

# What tests let work beside Slipway is compiled after those tools, and gives way to all else.
controllers_start() {
  [[ -d $(gitops_folder) && -d $(metrics_folder) && -d $(flagger_folder) && -d $(gateway_folder) ]] || {
    require_go
    job controllers controllers_make "${JOBS[tools]:-}"
  }
}

# controllers_make TOOLS: the job that compiles the tools, if it still does.
controllers_make() {
  renice -n 19 "$BASHPID" >/dev/null
  job_await "$1" "$(tools_folder)"
  peers_need_python && tools_make "$(gitops_folder)" gitops_compile && tools_make "$(gateway_folder)" gateway_fill &&
    tools_make "$(metrics_folder)" metrics_compile && tools_make "$(flagger_folder)" flagger_compile
}

gitops_build() {
  local folder
  folder=$(gitops_folder)
  job_wait controllers "$folder"
  tools_make "$folder" gitops_compile
  tools_link "$folder"
}

metrics_build() {
  local folder
  folder=$(metrics_folder)
  job_wait controllers "$folder"
  tools_make "$folder" metrics_compile
  tools_link "$folder"
}

flagger_build() {
  local folder
  folder=$(flagger_folder)
  job_wait controllers "$folder"
  tools_make "$folder" flagger_compile
  tools_link "$folder"
}

# These are no programs of everybody's path: .local/gateway is the folder.
gateway_build() {
  local folder
  folder=$(gateway_folder)
  job_wait controllers "$folder"
  peers_need_python
  tools_make "$folder" gateway_fill
  ln -sfn "$folder" "$STATE/gateway"
}

# tools_make FOLDER COMPILE: into a folder beside, then renamed, so that an interrupted build never looks like a finished one.
tools_make() {
  [[ ! -d $1 ]] || return 0
  require_go
  mkdir -p "$CACHE/tools"
  (
    flock 9
    [[ ! -d $1 ]] || exit 0
    half=$(mktemp -d "$CACHE/tools/building.XXXXXX")
    # Nothing is debugged, and the compiler has memory to waste.
    (export CGO_ENABLED=0 GOGC=400 GOFLAGS='-trimpath -gcflags=all=-dwarf=false' && "$2" "$half") 9>&- </dev/null || { rm -rf "$half"; die "The tools could not be built; see above."; }
    chmod 755 "$half"
    mv -T "$half" "$1"
  ) 9>"$CACHE/tools/lock"
}

# One build compiles each package once. It yields to the compiler of Rust, whose crates wait for each other while these hardly
# do, so that the cores are busy to the end.
tools_compile() {
  cd "$ROOT/hack/tools" || return
  echo "packages $(go list -deps "${TOOLS_PACKAGES[@]}" | wc -l)"
  nice -n 10 go build -v -ldflags "$TOOLS_LDFLAGS" -ldflags "helm.sh/helm/v3/cmd/helm=$HELM_LDFLAGS" -o "$1/" "${TOOLS_PACKAGES[@]}" &&
    mv "$1/server" "$1/etcd"
}

gitops_compile() {
  say "        from source; some two minutes on two cores with empty caches"
  (cd "$ROOT/hack/tools/gitops" && go build -ldflags "-s -w" -o "$1/gitops-agent" github.com/argoproj/gitops-engine/agent) &&
    (cd "$ROOT/hack/tools/gitops/health" && go build -ldflags "-s -w" -o "$1/gitops-health" .)
}

metrics_compile() {
  say "        from source; some three minutes on two cores with empty caches"
  (cd "$ROOT/hack/tools/metrics" && go build -ldflags "-s -w" -o "$1/metrics-server" sigs.k8s.io/metrics-server/cmd/metrics-server)
}

# Its kinds lie in its source.
flagger_compile() {
  say "        from source; some two minutes on two cores with empty caches"
  cd "$ROOT/hack/tools/flagger" && go build -ldflags "-s -w" -o "$1/flagger" . &&
    command install -m 644 "$(go list -m -f '{{.Dir}}' github.com/fluxcd/flagger)/artifacts/flagger/crd.yaml" "$1/flagger-crd.yaml"
}

gateway_fill() {
  local module file
  peers_environment "$1" || return
  peers_pip "$1" --no-compile --target "$1/wheels" --requirement "$ROOT/hack/tools/gateway/requirements.txt" || return
  mv "$1/wheels/bin/traefik" "$1/" && rm -rf "$1/wheels" "$1/python" || return
  cd "$ROOT/hack/tools/gateway" && go mod download || return
  module=$(go list -m -f '{{.Dir}}' istio.io/api) || return
  cat "$module/kubernetes/customresourcedefinitions.gen.yaml" >"$1/istio.yaml" || return
  module=$(go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api) || return
  for file in "$module"/config/crd/standard/*.yaml; do
    # Not the policy against earlier versions, which no definition needs.
    [[ $file == *_vap_* ]] || { echo --- && cat "$file"; } || return
  done >"$1/gateway-api.yaml"
}
