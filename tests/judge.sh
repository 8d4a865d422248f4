# How tests that are programs are run and judged; sourced by tests/interop/run and tests/doors/run. tests/README.md, "Tests that fail", says why.
#
# Environment: the programs to test (programs.sh); WHIMBREL_FAILED, the folder in which what a failed test leaves is kept (.x/failed).
judge_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$judge_root/tests/programs.sh"
judge_failed=${WHIMBREL_FAILED:-$judge_root/.x/failed}
judge_tmp=$(mktemp -d)
chmod 755 "$judge_tmp" # scripts of tests/doors run as other users, which have to reach their folder below it
trap 'rm -rf "$judge_tmp"' EXIT
ulimit -S -c "$(ulimit -H -c)" 2>/dev/null || true # the folder that a test runs in is kept if it fails

# attempt COMMAND...: runs it in a folder of its own, `at`, with its output in `at`.log; returns its exit status. Status 75 says that its set-up
# failed, and no more than that: it is then run once more. Nothing else gets a second attempt.
attempt() {
  local rc=75 tries=0
  while [ "$rc" = 75 ] && [ "$tries" -lt 2 ]; do
    at=$(mktemp -d -p "$judge_tmp")
    rc=0
    (cd "$at" && WHIMBREL_CHAOS_DIR=$at "$@") >"$at.log" 2>&1 || rc=$?
    tries=$((tries + 1))
    [ "$rc" != 75 ] || sed "s/^/    set-up, attempt $tries: /" "$at.log" | tail -n 3
  done
  return "$rc"
}

# keep NAME COMMAND...: moves what the last attempt left to a folder that stays, and prints its path: logs, core dumps and, in the command, the seed.
keep() {
  local kept=$judge_failed/$(tr -cs '[:alnum:]' '-' <<<"$1" | cut -c1-60 | sed 's/-*$//')
  shift
  rm -rf "$kept"
  mkdir -p "$judge_failed"
  mv "$at" "$kept"
  mv "$at.log" "$kept/output"
  { printf '%q ' env WHIMBREL="$WHIMBREL" WHIMBREL_LAB="$WHIMBREL_LAB" WHIMBREL_BROKER="$WHIMBREL_BROKER" "$@"; echo; } >"$kept/command"
  realpath --relative-to "$judge_root" "$kept"
}

# judge NAME COMMAND...: one test. Exit status 77 skips it, and its last line says why; any other but 0 is a failure.
judge() {
  local name=$1 rc=0 at begun=$SECONDS
  shift
  attempt "$@" || rc=$?
  case $rc in
    0) echo "ok - $name ($((SECONDS - begun)) s)" ;;
    77) echo "skip - $name: $(tail -n 1 "$at.log")" ;;
    *)
      sed 's/^/    /' "$at.log"
      echo "not ok - $name: exit status $rc; $(keep "$name" "$@") has the rest"
      ;;
  esac
  rm -rf "$at" "$at.log"
}

# judge_lines NAME COMMAND...: likewise, of one that prints lines of its own for what it tests. Returns 1 if any failed.
judge_lines() {
  local name=$1 rc=0 at bad=0 begun=$SECONDS
  shift
  attempt "$@" || rc=$?
  cat "$at.log"
  echo "    $name: $((SECONDS - begun)) s"
  if grep -q '^not ok - ' "$at.log"; then
    bad=1
    echo "    $(keep "$name" "$@") has the rest"
  else
    case $rc in
      0) grep -qE '^(ok|skip) - ' "$at.log" || echo "ok - $name" ;;
      77) grep -q '^skip - ' "$at.log" || echo "skip - $name: $(tail -n 1 "$at.log")" ;;
      *)
        bad=1
        echo "not ok - $name: exit status $rc; $(keep "$name" "$@") has the rest"
        ;;
    esac
  fi
  rm -rf "$at" "$at.log"
  return "$bad"
}
