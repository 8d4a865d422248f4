# What the chaos scenarios share, sourced by them: netns.sh, a second host behind a wire, a cluster key and the UEs.
#
# Set before, beside what netns.sh needs: `seconds` and `seed`. Set after: `elsewhere`, a process whose network namespace is the host
# behind the wire; `near` is this host's end of the wire, `$tmp/cluster.key` the key, `$tmp/play.yaml` what UEs do for that time; `backed`
# asks the core whose API is at 127.0.0.1:8081; `mute` and `together` need nft among the tools.
. "$(dirname "${BASH_SOURCE[0]}")/../netns.sh"
rm -rf "$tmp"/*.log "$tmp"/*.db* "$tmp"/etcd # of an earlier run

# runs COMMAND...: starts it in the background; its end is not reported. Its process number is in `last`.
runs() {
  "$@" &
  last=$!
  running+=("$last")
  disown
}
# backed: waits until each UE has a replica again; metrics are half a second old at most.
backed() {
  sleep 0.55
  for _ in $(seq 100); do
    [ "$(metric whimbrel_ues_without_backup)" = 0 ] && return
    sleep 0.05
  done
  wrong "UEs have no replica for five seconds"
}

# noticed CONFIG [COMMAND...]: UEs noticed something. Shows what explains it: losses and takeovers, the last events of the UE that failed first, and
# what the core with this configuration says of it; COMMAND enters that core's network.
noticed() {
  local config=$1 ue
  shift
  ue=$(sed -n 's/^failed: \(imsi-[0-9]*\) .*/\1/p' "$tmp/play.log" | head -n 1)
  (cd "$tmp" && grep -E "is the primary|is lost|was lost|continues without|another CTA has|served by other" *.log | sort -t: -k2 | tail -n 25 | cut -c1-200) || true
  if [ -n "$ue" ]; then
    grep "^$ue: " "$tmp/play.log" | grep -v ': Holds' | tail -n 6 | cut -c1-200 || true
    "$@" "$WHIMBREL" why "$ue" --config "$config" || true
  fi
  wrong "UEs noticed"
}

ip link add near type veth peer name far
ip address add 192.0.2.1/24 dev near
ip link set near up
runs unshare --net sleep infinity
elsewhere=$last
own_network "$elsewhere"
ip link set far netns "$elsewhere"
nsenter -t "$elsewhere" -n ip address add 192.0.2.2/24 dev far
nsenter -t "$elsewhere" -n ip link set far up
nsenter -t "$elsewhere" -n ip link set lo up

head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$tmp/cluster.key"
chmod 600 "$tmp/cluster.key"
sed "s/^seconds: .*/seconds: $seconds/" "$(dirname "$0")/ues.yaml" >"$tmp/play.yaml"

# mute: links from the host behind the wire to a CTA, at port 7380, pass nothing, in one direction or both; heartbeats pass.
mute() {
  local in="chain in { type filter hook input priority 0; tcp sport 7380 drop; }"
  local out="chain out { type filter hook output priority 0; tcp dport 7380 drop; }"
  local ways=("$in" "$out" "$in"$'\n'"$out")
  nsenter -t "$elsewhere" -n nft "table inet apart { ${ways[RANDOM % 3]}"$'\n'"}"
}
together() { nsenter -t "$elsewhere" -n nft delete table inet apart; }
