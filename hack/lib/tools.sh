# The programs that hack/tools pins, built once per user and linked into .local/bin.
# shellcheck shell=bash

KUBERNETES_VERSION=v1.35.4
TOOLS_LDFLAGS="-s -w
  -X k8s.io/component-base/version.gitVersion=$KUBERNETES_VERSION
  -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35
  -X k8s.io/component-base/version.gitTreeState=clean"
TOOLS_KUBERNETES=(
  k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl}
)
TOOLS_OTHERS=(
  go.etcd.io/etcd/server/v3 github.com/coredns/coredns helm.sh/helm/v3/cmd/helm
  github.com/google/go-containerregistry/cmd/crane github.com/yannh/kubeconform/cmd/kubeconform
  ./pause
)

# A second clone with the same pins finds the same folder.
tools_folder() {
  { cat "$ROOT"/hack/tools/{go.mod,go.sum,pause/main.go} && printf '%s\n' "$TOOLS_LDFLAGS" "${TOOLS_KUBERNETES[@]}" "${TOOLS_OTHERS[@]}"; } |
    sha256sum | cut -c1-16 | sed "s|^|$CACHE/tools/|"
}

tools_build() {
  local folder
  folder=$(tools_folder)
  if [[ ! -d $folder ]]; then
    require_go
    mkdir -p "$CACHE/tools"
    (
      flock 9
      [[ -d $folder ]] || tools_compile "$folder"
    ) 9>"$CACHE/tools/lock"
  fi
  mkdir -p "$STATE/bin"
  find "$STATE/bin" -type l -delete
  ln -sfn "$folder"/* "$STATE/bin/"
}

# Into a folder beside, then renamed: an interrupted build never looks like a finished one.
tools_compile() {
  local folder=$1 half
  half=$(mktemp -d "$CACHE/tools/building.XXXXXX")
  say "        from source; some ten minutes on two cores with empty caches, seconds afterwards"
  (
    cd "$ROOT/hack/tools"
    export CGO_ENABLED=0
    local batch
    for batch in KUBERNETES OTHERS; do
      local -n packages=TOOLS_$batch
      go build -trimpath -ldflags "$TOOLS_LDFLAGS" -o "$half/" "${packages[@]}" </dev/null 9>&-
    done
  ) || { rm -rf "$half"; die "The tools could not be built; see above."; }
  mv "$half/server" "$half/etcd"
  chmod 755 "$half"
  mv -T "$half" "$folder"
}
