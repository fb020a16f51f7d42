# Bills of materials: what is inside an image, crate by crate and package by package, as CycloneDX. It lies in the image
# under /usr/share/doc/slipway, where scanners find it, and beside the image.
# shellcheck shell=bash

# bill PROGRAM VERSION ROOTFS [OTHERS]: of an image whose program is Rust, or which has none when PROGRAM is no crate of
# ours. OTHERS is a file of components that layers below bring.
bill() {
  local image=$1 version=$2 rootfs=$3 others=${4:-} program=${1/state/manager} work crates=
  work=$STATE/images/bill
  mkdir -p "$work"
  bill_crates "$work"
  [[ ! -s $work/$program.crates ]] || crates=$work/$program.crates
  {
    [[ -z $others ]] || cat "$others"
    [[ -z $crates ]] || bill_linked
    [[ ! -e $rootfs/etc/ssl/certs/ca-certificates.crt ]] || bill_installed ca-certificates
  } >"$work/$image.others"
  jq -nS --slurpfile meta "$work/metadata.json" --rawfile crates "${crates:-/dev/null}" --rawfile locked "$work/locked" \
    --rawfile others "$work/$image.others" --arg image "$image" --arg version "$version" --arg program "$program" \
    -f "$ROOT/hack/lib/bill.jq" >"$work/$image.json"
  install_file "$work/$image.json" "$rootfs/usr/share/doc/slipway/$image.cdx.json" 644
  cp "$work/$image.json" "$STATE/images/$image.cdx.json"
}

# The crates within each program, as they are resolved for all of the workspace, which is how programs are built. Macros
# and what only builds is not inside.
bill_crates() {
  local work=$1 host stamp
  host=$(rustc -vV | sed -n 's/^host: //p')
  stamp=$({ cd "$ROOT" && echo "$host" && cat Cargo.lock Cargo.toml .cargo/config.toml {bench,e2e,peers,src/*}/Cargo.toml hack/lib/bill.sh; } | sha256sum)
  [[ $(cat "$work/stamp" 2>/dev/null) != "$stamp" ]] || return 0
  rm -f "$work/stamp"
  cargo metadata --locked --quiet --format-version 1 --filter-platform "$host" >"$work/metadata.json"
  cargo tree --locked --quiet --workspace --target "$host" --edges normal,no-proc-macro --prefix depth --no-dedupe --format ' {p}' |
    awk -v folder="$work" '
      $1 == "0" {program = $2 ~ /^slipway-(manager|runtime|worker)$/ ? $2 : ""}
      program && $2 {seen[program, $2 " " substr($3, 2)] = 1}
      END {for (key in seen) {split(key, part, SUBSEP); print part[2] >(folder "/" part[1] ".crates")}}'
  awk '/^name = / {name = $3} /^version = / {version = $3} /^checksum = / {print name, version, $3}' "$ROOT/Cargo.lock" | tr -d '"' >"$work/locked"
  echo "$stamp" >"$work/stamp"
}

# What every program of ours is linked with besides.
bill_linked() {
  rustc -vV | sed -n 's/^release: //p' | jq -cR '{type: "library", name: "rust", version: ., purl: "pkg:generic/rust@\(.)"} | ."bom-ref" = .purl'
  bill_installed libc6-dev
}

# bill_debian: from lines of PACKAGE, VERSION and ARCHITECTURE, a tab between.
bill_debian() {
  jq -cR 'split("\t") | {type: "library", name: .[0], version: .[1], purl: "pkg:deb/debian/\(.[0])@\(.[1] | @uri)?arch=\(.[2])"} | ."bom-ref" = .purl'
}

# bill_installed PACKAGE...: packages of this machine that the image has a part of. Elsewhere than on Debian they have no
# name that we know.
bill_installed() {
  if command -v dpkg-query >/dev/null; then
    dpkg-query --show --showformat='${Package}\t${Version}\t${Architecture}\n' "$@" | sort -u | bill_debian
  fi
}

# bill_owners FILE...: which packages of this machine these files are of. Some are known by the name of before /usr
# was one with the root.
bill_owners() {
  local file
  for file in "$@"; do
    { dpkg-query --search "$file" || dpkg-query --search "${file#/usr}" || dpkg-query --search "/usr$file"; } 2>/dev/null |
      sed 's/: .*//' || die "No package of this machine brought $file."
  done | sort -u
}

# bill_pinned PACKAGE: the version in hack/peers.d/files.txt.
bill_pinned() { sed -n "s/^$1==\([^ ]*\).*/\1/p" "$PEERS_PINS/files.txt"; }

# bill_file TYPE NAME VERSION PURL LICENCE FILE: something that is no package of its own here.
bill_file() {
  jq -cn --arg type "$1" --arg name "$2" --arg version "$3" --arg purl "$4" --arg licence "$5" --arg sum "$(sha256sum <"$6" | cut -d' ' -f1)" \
    '{type: $type, name: $name, version: $version, purl: $purl, "bom-ref": $purl, licenses: [{license: {id: $licence}}],
      hashes: [{alg: "SHA-256", content: $sum}]}'
}
