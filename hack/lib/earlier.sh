# Slipway as an earlier commit has it, chart and programs, which the test of upgrades begins with.
# shellcheck shell=bash

# The last commit before there were releases. Since then came a kind, a part of the platform, policies and fields of Agents,
# so that an upgrade from here changes something of every sort.
EARLIER=61220b067bc36f49f855caf20fe0a58c5b3e46c6

# Its programs are compiled once per user, and anew when the patch is another.
earlier_folder() { sha256sum <"$ROOT/hack/lib/earlier.patch" | cut -c1-8 | sed "s|^|$CACHE/earlier/$EARLIER-|"; }

# Where a shallow clone cannot get the commit, there is nothing to upgrade from, and the test says so.
earlier_known() {
  git -C "$ROOT" cat-file -e "$EARLIER^{commit}" 2>/dev/null || {
    git -C "$ROOT" fetch --quiet --unshallow </dev/null
    git -C "$ROOT" cat-file -e "$EARLIER^{commit}"
  } 2>/dev/null
}

earlier_start() {
  rm -rf "$STATE/earlier"
  ! earlier_known || [[ -d $(earlier_folder) ]] || { require_cargo && job earlier in_turn earlier_compile; }
}

# The patch gives its crates a version of their own and its programs other names, so that they lie beside the present ones
# among what is compiled, and other people's crates the features that they have at present, so that they are compiled once.
# Programs for one test need not be fast.
earlier_compile() {
  local half folder lighter
  renice -n 5 "$BASHPID" >/dev/null
  folder=$(binaries)
  # Another clone may have been first.
  [[ ! -d $(earlier_folder) ]] || return 0
  mkdir -p "$CACHE/earlier"
  rm -rf "$CACHE"/earlier/building.*
  half=$(mktemp -d "$CACHE/earlier/building.XXXXXX") &&
    git -C "$ROOT" archive "$EARLIER" | tar --extract --directory "$half" &&
    cd "$half" &&
    GIT_CEILING_DIRECTORIES=$CACHE/earlier git apply "$ROOT/hack/lib/earlier.patch" &&
    sed -n '/^\[profile/,$p' "$ROOT/Cargo.toml" >profile.toml &&
    mapfile -t lighter < <(sed -n 's/^name = "\(slipway-.*\)"/--config=profile.release.package.\1.opt-level=0/p' Cargo.lock) &&
    cargo_telling build --release --locked --workspace --bin earlier-manager --bin earlier-runtime --config profile.toml "${lighter[@]}" &&
    mkdir programs &&
    cp "$folder/earlier-manager" programs/slipway-manager &&
    cp "$folder/earlier-runtime" programs/slipway-runtime &&
    mv -T programs "$(earlier_folder)" &&
    rm -rf "$half"
}

# earlier_up: .local/earlier has the chart, and values that name its images, which the cluster has.
earlier_up() {
  job_wait earlier
  earlier_known || { say "        commit $EARLIER is not in this shallow clone: upgrades are not tested" && return; }
  mkdir -p "$STATE/earlier/chart" "$STATE/earlier/images/programs"
  git -C "$ROOT" archive "$EARLIER" Chart.yaml values.yaml values.schema.json templates crds | tar --extract --directory "$STATE/earlier/chart"
  cp "$(earlier_folder)"/* "$STATE/earlier/images/programs/"
  (
    layer=$STATE/images/minilm.tar
    STATE=$STATE/earlier
    earlier_image slipway-manager
    earlier_image slipway-runtime "$layer"
    jq -n --arg manager "$(cat "$STATE/images/slipway-manager.tag")" --arg runtime "$(cat "$STATE/images/slipway-runtime.tag")" \
      '{manager: {image: {tag: $manager}}, runtime: {image: {tag: $runtime}}}' >"$STATE/values.json"
  )
}

# earlier_image PROGRAM [LAYER...]
earlier_image() {
  image_rootfs "$1" "$1"
  image_seal "$1" earlier "{\"Entrypoint\": [\"/$1\"], \"User\": \"65532:65532\"}" "${@:2}"
  image_import "$(image_name "$1")" "$STATE/images/$1.tar"
}
