# Projects of POST /scaffold: environments for their tests, and images of them without a builder.
# shellcheck shell=bash

SCAFFOLD_TEMPLATES=$ROOT/src/scaffold/templates

# scaffold_environments FRAMEWORK...: .local/scaffold/FRAMEWORK, with what its requirements.txt pins. The same pins are installed
# once per user.
scaffold_environments() {
  local framework pins folder
  mkdir -p "$STATE/scaffold" "$CACHE/scaffold"
  peers_need_python
  for framework in "$@"; do
    pins=$SCAFFOLD_TEMPLATES/$framework/requirements.txt
    folder=$CACHE/scaffold/$({ cat "$pins" && "$(peers_python)" --version; } | sha256sum | cut -c1-16)
    (
      flock 9
      [[ -e $folder/complete ]] || {
        rm -rf "$folder"
        "$(peers_python)" -m venv "$folder" &&
          "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$pins" &&
          touch "$folder/complete"
      } || die "What $framework needs could not be installed."
    ) 9>"$CACHE/scaffold/lock"
    ln -sfn "$folder" "$STATE/scaffold/$framework"
  done
}

# scaffold_image FOLDER NAME: the project's image in the local cluster: Debian's Python 3.11, what its requirements.txt pins, and its
# program, as its Containerfile has them. Only wheels are installed, so that no compiler is needed.
scaffold_image() {
  local folder=$1 name=$2 rootfs source python=3.11
  # Without a registry, that is what nodes take it for.
  [[ $name == */* ]] || name=docker.io/library/$name
  peers_need_python
  rootfs=$(mktemp -d "$STATE/scaffold-image.XXXXXX")
  source=$(packages_unpack 'libdb5.3|libnsl2|libtirpc3|libtirpc-common|libgssapi-krb5-2|libkrb5-3|libkrb5support0|libk5crypto3|libcom-err2|libkeyutils1' "python$python-minimal" "libpython$python-stdlib" libstdc++6)
  cp -R --no-dereference --preserve=links,mode "$source/." "$rootfs/"
  rm -rf "$rootfs"/{.packages,.contents} "$rootfs"/usr/share/{doc,man,lintian}
  install_file /etc/ssl/certs/ca-certificates.crt "$rootfs/etc/ssl/certs/ca-certificates.crt" 644
  image_users "$rootfs" agent 65532
  mkdir -p "$rootfs/tmp" "$rootfs/app/site"
  "$(peers_python)" -m venv "$rootfs.pip"
  "$rootfs.pip/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary=:all: --python-version "$python" \
    --target "$rootfs/app/site" --requirement "$folder/requirements.txt"
  cp "$folder"/*.py "$folder/project.json" "$rootfs/app/"
  scaffold_bytecode "$rootfs.pip/bin/python" "$python" "$rootfs"
  chmod -R u=rwX,go=rX "$rootfs"
  chmod 1777 "$rootfs/tmp"
  image_archive "$name" "$rootfs" "{\"Entrypoint\": [\"/usr/bin/python$python\", \"agent.py\"], \"User\": \"65532:65532\", \"WorkingDir\": \"/app\",
    \"Env\": [\"PATH=/usr/bin:/bin\", \"HOME=/tmp\", \"PYTHONPATH=/app/site\", \"PYTHONDONTWRITEBYTECODE=1\", \"PYTHONUNBUFFERED=1\"],
    \"ExposedPorts\": {\"8000/tcp\": {}}}" "$rootfs.tar"
  rm -rf "$rootfs" "$rootfs.pip"
  mkdir -p "$STATE/images"
  image_import "$name" "$rootfs.tar"
  rm -f "$rootfs.tar"
}

# scaffold_bytecode PYTHON VERSION ROOTFS: bytecode of all modules, where this Python writes that of the image's: without it a program
# compiles thousands of modules each time that it starts. Files in an image have no times, by which bytecode is checked by default.
# What cannot be compiled, such as templates of packages, is not imported either.
scaffold_bytecode() {
  [[ $("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])') == "$2" ]] || return 0
  nice "$1" -m compileall -qq -j 0 --invalidation-mode unchecked-hash -s "$3" -p / "$3/app" "$3/usr/lib/python$2" || true
}
