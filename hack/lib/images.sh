# Images without Docker: a root file system, a configuration and a manifest in one tar, in the form
# that `docker load`, `ctr images import` and `crane push` all take. The same content gives the same tar.
# shellcheck shell=bash

plain_tar() {
  tar --create --file "$1" --directory "$2" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --format=gnu .
}

architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
  esac
}

# image_archive NAME ROOTFS CONFIG FILE: CONFIG is the "config" object of the image, FILE the result.
image_archive() {
  local name=$1 rootfs=$2 config=$3 file=$4 work
  work=$(mktemp -d "$STATE/image.XXXXXX")
  plain_tar "$work/layer" "$rootfs"
  mkdir "$work/image"
  jq -cnS --argjson config "$config" --arg architecture "$(architecture)" \
    --arg layer "sha256:$(sha256sum "$work/layer" | cut -d' ' -f1)" \
    '{architecture: $architecture, os: "linux", created: "1970-01-01T00:00:00Z", config: $config,
      rootfs: {type: "layers", diff_ids: [$layer]}}' >"$work/image/config.json"
  mv "$work/layer" "$work/image/layer.tar"
  jq -cn --arg name "$name" '[{Config: "config.json", RepoTags: [$name], Layers: ["layer.tar"]}]' >"$work/image/manifest.json"
  chmod -R go=rX "$work/image"
  plain_tar "$work/archive" "$work/image"
  mv "$work/archive" "$file"
  rm -rf "$work"
}

# image_import NAME FILE: nothing if containerd has an image of that name and that content.
image_import() {
  local name=$1 file=$2 stamp
  stamp=$STATE/images/$(sha256sum "$file" | cut -c1-16).imported
  [[ -e $stamp && -n $(containers images list --quiet "name==$name") ]] || {
    containers images import "$file" >/dev/null
    touch "$stamp"
  }
}

image_pause() {
  local rootfs=$STATE/images/pause
  if [[ ! -s $rootfs.tar || $rootfs.tar -ot $TOOLS/pause ]]; then
    rm -rf "$rootfs"
    mkdir -p "$rootfs"
    install_file "$TOOLS/pause" "$rootfs/pause"
    image_archive "$PAUSE_IMAGE" "$rootfs" '{"Entrypoint": ["/pause"], "User": "65535:65535"}' "$rootfs.tar"
  fi
  image_import "$PAUSE_IMAGE" "$rootfs.tar"
}

install_file() {
  command install -D -m "${3:-755}" "$1" "$2"
}

# The host's triple is named in .cargo/config.toml, so that is where binaries lie.
images_compile() {
  require_cargo
  cargo build --quiet --release --locked --package slipway-manager --package slipway-runtime </dev/null
}

# image_build PROGRAM: .local/images/PROGRAM.tar, and its tag beside it.
image_build() {
  local rootfs=$STATE/images/$1 binary tag
  binary=$CARGO_TARGET_DIR/$(rustc -vV | sed -n 's/^host: //p')/release/$1
  rm -rf "$rootfs"
  mkdir -p "$rootfs/etc" "$rootfs/tmp"
  install_file "$binary" "$rootfs/$1"
  install_file /etc/ssl/certs/ca-certificates.crt "$rootfs/etc/ssl/certs/ca-certificates.crt" 644
  printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' 'slipway:x:65532:65532:slipway:/:/sbin/nologin' >"$rootfs/etc/passwd"
  printf '%s\n' 'root:x:0:' 'slipway:x:65532:' >"$rootfs/etc/group"
  echo 'hosts: files dns' >"$rootfs/etc/nsswitch.conf"
  chmod -R u=rwX,go=rX "$rootfs"
  tag=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' Chart.yaml)-$(plain_tar - "$rootfs" | sha256sum | cut -c1-12)
  if [[ $(cat "$rootfs.tag" 2>/dev/null) != "$tag" || ! -s $rootfs.tar ]]; then
    image_archive "slipway.dev/$1:$tag" "$rootfs" "{\"Entrypoint\": [\"/$1\"], \"User\": \"65532:65532\"}" "$rootfs.tar"
    echo "$tag" >"$rootfs.tag"
  fi
  rm -rf "$rootfs"
}

image_name() { echo "slipway.dev/$1:$(cat "$STATE/images/$1.tag")"; }

# What Helm must be told, so that the cluster runs these very images.
image_settings() {
  local registry=${1:-slipway.dev} part
  for part in manager runtime; do
    printf '%s\n' --set "$part.image.repository=$registry/slipway-$part" \
      --set-string "$part.image.tag=$(cat "$STATE/images/slipway-$part.tag")"
  done
}
