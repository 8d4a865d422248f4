#!/usr/bin/env bash
# The measurements that end CPFs and other parts, with so little to measure that they show only that they run and that no UE notices.
# Exit status 77: this host cannot run it (the last line says why).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../needs.sh"

needs_namespace
output=$(timeout -s KILL 120 "$WHIMBREL_LAB" bench load --cpfs 2 --kill-every 1 --rates 100 --seconds 3 --ues 100) || { echo "$output"; exit 1; }
case $output in
  *"CPFs killed: 0;"*) echo "$output"; exit 1 ;;
  *"CPFs killed: "*", lost: 0;"*) ;;
  *) echo "$output"; exit 1 ;;
esac
output=$(timeout -s KILL 120 "$WHIMBREL_LAB" bench detection --carried 100 --loads 70 --intervals-ms 50 --sbfd-intervals-ms 20 --detectors heartbeats,sbfd --seconds 1 --hangs 1 --ues 100) || { echo "$output"; exit 1; }
case $output in *'"found_p50_ms":null'*) echo "$output"; exit 1 ;; esac
output=$(timeout -s KILL 120 "$WHIMBREL_LAB" bench neutrino fig10 --quick) || { echo "$output"; exit 1; }
case $output in *'"not_served":0'*) ;; *) echo "$output"; exit 1 ;; esac
output=$(timeout -s KILL 120 "$WHIMBREL_LAB" bench l25gc failover --quick) || { echo "$output"; exit 1; }
case $output in *'"lost_with_replicas":0'*) ;; *) echo "$output"; exit 1 ;; esac
case $output in *'"case":"3GPP: CPF, UE attaches again"'*) ;; *) echo "$output"; exit 1 ;; esac
