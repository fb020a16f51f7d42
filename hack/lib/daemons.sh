# The cluster's daemons. There are no pid files: each carries SLIPWAY_DAEMON=FOLDER:NAME:HASH in its
# environment, so that a process is known by itself. The dead, zombies included, carry nothing, and
# neither does a stranger that was given an old number.
# shellcheck shell=bash

# marked PREFIX: "PID MARK" of every process whose mark begins so.
marked() {
  local file pid mark
  for file in $(grep -lz "^SLIPWAY_DAEMON=$1" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${file//[^0-9]/}
    mark=$(tr '\0' '\n' 2>/dev/null <"$file" | sed -n 's/^SLIPWAY_DAEMON=//p') || continue
    [[ -z $mark ]] || printf '%s %s\n' "$pid" "$mark"
  done
}

# daemon_find NAME: "PID MARK" of ours. A daemon's children inherit its mark, but not its program.
daemon_find() {
  local pid mark program
  while read -r pid mark; do
    program=$(readlink "/proc/$pid/exe") || continue
    program=${program% (deleted)}
    [[ ${program##*/} != "$1" ]] || { printf '%s %s\n' "$pid" "$mark"; return 0; }
  done < <(marked "$STATE:$1:")
  return 1
}

# daemon_start COMMAND...: nothing if it runs with the same program, arguments and configuration.
daemon_start() {
  local name=${1##*/} hash found
  hash=$({ printf '%s\n' "$@"; find "$STATE/config" -name "$name.*" -exec cat {} +; } | sha256sum | cut -c1-12)
  if found=$(daemon_find "$name"); then
    [[ ${found##*:} != "$hash" ]] || return 0
    daemon_stop "$name"
  fi
  mkdir -p "$LOGS"
  # shellcheck disable=SC2086
  SLIPWAY_DAEMON=$STATE:$name:$hash setsid env --unset TMPDIR ${DAEMON_VARIABLES:-} "$@" </dev/null >>"$LOGS/$name.log" 2>&1 8>&- 9>&- &
  local pid=$!
  disown
  # It carries its mark and its name from its last exec on, a moment from now.
  while alive "$pid" && ! daemon_find "$name" >/dev/null; do sleep 0.02; done
}

daemon_stop() {
  local found
  found=$(daemon_find "$1") || return 0
  stop_pids "${found%% *}"
}

# stop_pids PID...: TERM, and KILL for those that are still there five seconds later.
stop_pids() {
  local pid deadline=$((SECONDS + 5)) signal=TERM
  kill -TERM "$@" 2>/dev/null || true
  while :; do
    local left=()
    for pid in "$@"; do alive "$pid" && left+=("$pid"); done
    [[ ${#left[@]} -gt 0 ]] || return 0
    if ((SECONDS >= deadline)); then
      [[ $signal == TERM ]] || die "Processes ${left[*]} do not end." "They hang in the kernel; only a restart of the machine helps."
      signal=KILL deadline=$((SECONDS + 10))
      kill -KILL "${left[@]}" 2>/dev/null || true
    fi
    sleep 0.1
  done
}

# A zombie answers kill -0, and is dead.
alive() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) }
  [[ ${stat%% *} != [ZX] ]]
}

# daemon_expect NAME: it runs; else the end of its log says why not.
daemon_expect() {
  daemon_find "$1" >/dev/null || die "$1 has ended." "Its last words, from $LOGS/$1.log:" "$(tail -n 5 "$LOGS/$1.log")"
}
