# Jobs: builds that take minutes. Each runs in the background and writes a log, so that several share the cores and downloads
# go on beside them. job_wait prints every 20 s how far all of them are.
# shellcheck shell=bash

declare -A JOBS=()

# job NAME COMMAND...: starts it, unless it runs already. Its log is NAME.log.
job() {
  local name=$1
  shift
  [[ -z ${JOBS[$name]:-} ]] || return 0
  mkdir -p "$LOGS"
  [[ -n $(trap -p EXIT) ]] || trap jobs_end EXIT
  # With a process group of its own it can be ended whole.
  set -m
  "$@" </dev/null >"$LOGS/$name.log" 2>&1 9>&- &
  set +m
  JOBS[$name]=$!
}

# job_wait NAME [FOLDER]: until it has ended, or has made the folder; nothing if it never began.
job_wait() {
  local pid=${JOBS[$1]:-} next=$((SECONDS + 20))
  [[ -n $pid ]] || return 0
  while alive "$pid"; do
    [[ -z ${2:-} || ! -d $2 ]] || return 0
    sleep 0.2
    ((SECONDS < next)) || { jobs_tell && next=$((SECONDS + 20)); }
  done
  unset "JOBS[$1]"
  wait "$pid" || die "The build of the $1 failed. Its log, $LOGS/$1.log, ends so:" "$(log_end 15 "$LOGS/$1.log")"
}

# job_await PID FILE: until the job has made it, or has ended, without a word. For what runs beside the script that began the job, too.
job_await() {
  while [[ -n $1 && ! -e $2 ]] && alive "$1"; do sleep 0.5; done
}

# Cargo in a job, which says how far it is without a terminal.
cargo_telling() {
  CARGO_TERM_COLOR=never CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=120 cargo "$@"
}

# log_end LINES LOG: the last of it, without bars that grow.
log_end() { tr '\r' '\n' <"$2" | grep -v ' Building \[' | tail -n "$1" || true; }

# logs_end LINES: so of all logs.
logs_end() {
  local log
  for log in "$LOGS"/*.log; do
    [[ ! -f $log ]] || { printf '==> %s <==\n' "$log" && log_end "$1" "$log"; }
  done
}

jobs_end() {
  local name
  for name in "${!JOBS[@]}"; do kill -TERM -- "-${JOBS[$name]}" 2>/dev/null || true; done
}

jobs_tell() {
  local name line=
  for name in "${!JOBS[@]}"; do
    ! alive "${JOBS[$name]}" || line+="${line:+; }$name: $(job_progress "$LOGS/$name.log")"
  done
  printf '[%4ds]     %s\n' "$SECONDS" "$line"
}

# job_progress LOG: how far Cargo or Go is. Cargo says itself how many crates there are, Go is told before by `packages N`.
job_progress() {
  tr '\r' '\n' <"$1" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | awk '
    /^packages [0-9]+$/ {total = $2; next}
    /Building \[.*\] [0-9]+\/[0-9]+/ {sub(/.*\] /, ""); split($0, part, ": "); sub("/", " of ", part[1]); told = part[1] " crates" (part[2] ? ", " part[2] : "")}
    total && /^[^ :]+$/ {told = ++done " of " total " packages, " $0}
    /^(go: downloading|[ ]+Download)/ {if (!told) told = "downloading"}
    /^ +(waits for |Blocking waiting)/ {told = $0}
    END {print told ? substr(told, 1, 70) : "under way"}'
}
