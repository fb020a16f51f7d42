# Debian's packages, unpacked and not installed: what images are made of, and servers that tests start themselves. The
# machine's own apt says which versions, fetches them and checks their signatures; nothing on the machine is changed.
# shellcheck shell=bash

# packages_of PACKAGE...: these, and the libraries that they depend on, all the way down. Of alternatives the first.
packages_of() {
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" |
    awk -v roots="$*" '
      /^[^ ]/ {package = $1; other = 0; next}
      /Depends: / {
        if (!other && $2 ~ /^(lib|zlib)/ && $2 !~ /^libperl|-perl$/) needs[package] = needs[package] " " $2
        other = /^ *\|/
      }
      END {
        count = split(roots, queue, " ")
        for (at = 1; at <= count; at++) {
          if (seen[queue[at]]++) continue
          print queue[at]
          more = split(needs[queue[at]], found, " ")
          for (n = 1; n <= more; n++) queue[++count] = found[n]
        }
      }' | sort
}

# packages_unpack WITHOUT PACKAGE...: names a folder with these packages and their libraries, but for those that the
# pattern WITHOUT matches. The same versions are unpacked once, and looked for once per state of apt's lists.
packages_unpack() {
  local without=$1 names folder half memo deb
  shift
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    die "There is no apt-get here, which fetches $*." "On other systems than Debian's, make images with the Containerfile."
  mkdir -p "$CACHE/packages"
  packages_lists
  memo=$CACHE/packages/$({ echo "$without" "$@" && cat "$ROOT/hack/lib/packages.sh" && ls -l --time-style=+%s /var/lib/apt/lists; } | sha256sum | cut -c1-16).name
  folder=$(cat "$memo" 2>/dev/null || true)
  if [[ -z $folder || ! -d $folder ]]; then
    names=$(packages_of "$@")
    mapfile -t names < <(grep -vxE "$without" <<<"$names")
    folder=$(apt-get download --print-uris "${names[@]}") || die "apt does not know all of: ${names[*]}."
    folder=$CACHE/packages/$({ cut -d' ' -f2- <<<"$folder" | sort && echo .packages .contents; } | sha256sum | cut -c1-16)
  fi
  if [[ ! -d $folder ]]; then
    half=$(mktemp -d "$CACHE/packages/fetching.XXXXXX")
    mkdir "$half/deb" "$half/root"
    # Without a user of its own, which could not write here.
    (cd "$half/deb" && apt-get -q -o APT::Sandbox::User=root download "${names[@]}") </dev/null >"$half/log" 2>&1 || {
      tail -n 3 "$half/log" >&2
      rm -rf "$half"
      die "apt-get could not download $*; see above."
    }
    for deb in "$half"/deb/*.deb; do
      dpkg-deb --extract "$deb" "$half/root" &&
        dpkg-deb --show --showformat='${Package}\t${Version}\t${Architecture}\n' "$deb" >>"$half/root/.packages" &&
        dpkg-deb --fsys-tarfile "$deb" | tar --list | sed "s|^\.|$(dpkg-deb --field "$deb" Package)\t|" >>"$half/root/.contents" ||
        die "$(basename "$deb") could not be unpacked."
    done
    mv -T "$half/root" "$folder" || [[ -d $folder ]]
    rm -rf "$half"
  fi
  echo "$folder" >"$memo"
  echo "$folder"
}

# Lists of a machine that is old name packages that are gone. Only root may ask.
packages_lists() {
  [[ $EUID -eq 0 ]] || return 0
  mkdir -p "$LOGS"
  apt_lists </dev/null >"$LOGS/apt.log" 2>&1 || say "        apt-get update failed; what is known of packages may be old" >&2
}

# packages_within FOLDER ROOTFS: name, version and architecture of those packages of the unpacked folder that the root
# file system has files of. What no package brought is refused; where a link leads is another name of the same file.
packages_within() {
  (cd "$2" && find . -type f ! -path './usr/share/doc/*' -printf '%P\n') | awk -F '\t' -v folder="$1" '
    FILENAME == ARGV[1] {version[$1] = $0; next}
    FILENAME == ARGV[2] {owner[$2] = $1; name = $2; sub(/.*\//, "", name); if (name != "") named[name] = $1; next}
    {
      name = $1; sub(/.*\//, "", name)
      package = "/" $1 in owner ? owner["/" $1] : named[name]
      if (package == "") {print "no package brought /" $1 >"/dev/stderr"; exit 1}
      if (!told[package]++) print version[package]
    }' "$1/.packages" "$1/.contents" - | sort
}

# packages_libraries FOLDER PROGRAM...: the libraries within the unpacked folder that its programs load, the loader first.
packages_libraries() {
  local folder=$1 loader library paths
  shift
  # Links among them lead out of the folder.
  loader=$(find "$folder" -name 'ld-linux*' -type f)
  paths=$(find "$folder" -path '*-linux-*' -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)
  echo "$loader"
  for program in "$@"; do
    library=$("$loader" --inhibit-cache --library-path "$paths" --list "$folder/$program") && [[ $library != *"not found"* ]] ||
      die "$program does not load:" "$library"
    grep -oE "$folder/[^ ]+" <<<"$library"
  done | grep -v '/ld-linux' | sort -u
}

# What tests start: lighttpd with TLS and an SSH server, which git talks to, and Prometheus with promtool, without the scripts
# of its old consoles. The C library is the machine's own, whose loader starts them.
packages_servers() {
  install git=git ssh=openssh-client openssl=openssl
  mkdir -p "$STATE"
  local folder
  folder=$(packages_unpack 'libc6|libgcc-s1|libjs-.*' lighttpd lighttpd-mod-openssl openssh-server prometheus)
  ln -sfn "$folder" "$STATE/servers"
}
