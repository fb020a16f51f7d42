# All clones of the repository share one folder of compiled Rust. Cargo tells by a file's time whether it has changed,
# and the files of one clone may be older than what was compiled from those of another: it would test what is not there.
# So a file has the time at which its content came to this folder, whichever clone it came from; then what was compiled
# since is of that content, and a clone with nothing new has nothing to compile.
# shellcheck shell=bash

# in_turn COMMAND...: one clone's at a time; of the same clone several, which is for Cargo to sort out.
in_turn() {
  mkdir -p "$CARGO_TARGET_DIR"
  local turn=$CARGO_TARGET_DIR/clone result=0
  [[ ${IN_TURN:-$turn $ROOT} != "$turn "* || ${IN_TURN:-$turn $ROOT} == "$turn $ROOT" ]] ||
    die "What started this compiles or tests another clone, ${IN_TURN#"$turn "}, and would wait for itself." \
      "Give this one a CARGO_TARGET_DIR of its own."
  exec 7>>"$turn.lock"
  until flock --shared 7 && [[ $(cat "$turn" 2>/dev/null) == "$ROOT" ]]; do
    flock --nonblock 7 || {
      say "        waits for $(cat "$turn"), which compiles or tests" >&2
      flock 7
    }
    printf '%s\n' "$ROOT" >"$turn"
  done
  settle
  IN_TURN="$turn $ROOT" "$@" 7>&- || result=$?
  # What was edited meanwhile may be compiled already.
  settle
  exec 7>&-
  return "$result"
}

# settle: gives files their times, and those whose content is new here the present one.
settle() {
  local known=$CARGO_TARGET_DIR/sources now
  (
    flock 6
    cd "$ROOT" || exit
    now=$(date +%s.%N)
    touch -a "$known"
    find Cargo.lock Cargo.toml clippy.toml .cargo bench e2e peers src -type f -printf '%T@ %p\n' | sort -k 2 >"$known.times"
    cut -d' ' -f2- "$known.times" | tr '\n' '\0' | xargs -0 sha256sum >"$known.sums"
    awk -v now="$now" -v fresh="$known.new" '
      FILENAME == ARGV[1] {seen[$3] = $1; time[$3] = $2; next}
      FILENAME == ARGV[2] {sum[$2] = $1; next}
      {
        when = seen[$2] "" == sum[$2] "" ? time[$2] : now
        print sum[$2], when, $2 >fresh
        if (substr($1, 1, 20) != when) print when, $2
      }' "$known" "$known.sums" "$known.times" | while read -r when file; do touch --date "@$when" -- "$file"; done
    mv "$known.new" "$known"
  ) 6>"$CARGO_TARGET_DIR/sources.lock"
}
