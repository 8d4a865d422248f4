# What scripts want of the host, and are skipped for where they do not find it (exit status 77, the last line says why); sourced by them.
. "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

skip() { echo "$1"; exit 77; }
# setup_failed WHY: what the test needs did not start, before anything was tested. It is tried once more (tests/README.md).
setup_failed() { echo "set-up: $1"; exit 75; }
# needs_tools NAME...
needs_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
  done
}
# needs_namespace: `$WHIMBREL` can be run in a network namespace with TUN devices. Sets `user` to the options of `unshare` for a user that
# is not root.
needs_namespace() {
  [ -x "$WHIMBREL" ] || skip "no program to test: there is no $WHIMBREL"
  (: <>/dev/net/tun) 2>/dev/null || skip "/dev/net/tun cannot be opened here"
  user=(); [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
  unshare --net "${user[@]}" true 2>/dev/null || skip "network namespaces are not permitted here"
}
