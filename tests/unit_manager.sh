# A unit with the configuration $tmp/unit.yaml, for scripts that have sourced netns.sh: its manager, and a look at its functions. Sourced.
unit() { "$WHIMBREL" unit --config "$tmp/unit.yaml" 2>/dev/null; }
# manager: starts one; its number is left in $manager.
manager() {
  "$WHIMBREL" run --unit --config "$tmp/unit.yaml" 2>>"$tmp/unit.log" &
  manager=$!
  running+=("$manager")
}
# is_complete: whether all functions run and the primary has a replica; $tmp/state has them.
is_complete() { unit >"$tmp/state" && grep -q ' primary ' "$tmp/state" && grep -q ' replica ' "$tmp/state" && ! grep -qE ' (starting|leaving|given-up) ' "$tmp/state"; }
# until_true WHAT COMMAND...: waits until the command succeeds.
until_true() {
  local what=$1
  shift
  for _ in $(seq 400); do
    if "$@"; then return; fi
    sleep 0.1
  done
  unit || true
  wrong "$what"
}
# The functions outlive a manager, so they are ended by their own numbers.
leave() {
  unit | awk '$3 ~ /^[0-9]+$/ { print $3 }' | xargs -r kill -9 2>/dev/null || true
  finish
}
trap leave EXIT
