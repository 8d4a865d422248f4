#!/usr/bin/env bash
# histories.awk must find nothing in a correct history, and a contradiction in each one that was altered.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
bad=0
# history [SED]: a correct history, edited.
history() {
  sed -E "${1:-}" <<'END'
gNB 0: SetUp { }
imsi-1: Registered { since: 1, kind: Initial }
imsi-1: Holds guti=999-70-020040-00000001
imsi-1: SessionUp { since: 2 }
imsi-1: Holds guti=999-70-020040-00000001 address1=10.45.0.2 qos1=1:1000/1000 gnb1=1:1000/1000
imsi-2: Registered { since: 3, kind: Initial }
imsi-2: Holds guti=999-70-020040-00000002
imsi-1: Idle
imsi-1: Holds guti=999-70-020040-00000001 address1=10.45.0.2 qos1=1:1000/1000
imsi-1: ServiceAccepted { since: 4 }
imsi-1: Holds guti=999-70-020040-00000001 address1=10.45.0.2 qos1=1:1000/1000
imsi-1: UserPlane { session: 1, up: true }
imsi-1: Holds guti=999-70-020040-00000001 address1=10.45.0.2 qos1=1:1000/1000 gnb1=1:1000/1000
imsi-1: Discarded(Replayed)
imsi-1: Holds guti=999-70-020040-00000001 address1=10.45.0.2 qos1=1:1000/1000 gnb1=1:1000/1000
imsi-2: SessionUp { since: 5 }
imsi-2: Holds guti=999-70-020040-00000002 address1=10.45.0.3 qos1=1:1000/1000 gnb1=1:1000/1000
imsi-3: IdentityAsked(Suci)
imsi-3: Holds
imsi-3: Registered { since: 6, kind: Initial }
imsi-3: Holds guti=999-70-020040-00000003
imsi-3: SessionUp { since: 7 }
imsi-3: Holds guti=999-70-020040-00000003 address1=10.45.0.4 qos1=1:1000/1000 gnb1=1:1000/1000
imsi-2: Registered { since: 8, kind: PeriodicRegistrationUpdating }
imsi-2: Holds guti=999-70-020040-00000012 address1=10.45.0.3 qos1=1:1000/1000
imsi-3: UserPlane { session: 1, up: false }
imsi-3: Holds guti=999-70-020040-00000003 address1=10.45.0.4 qos1=1:1000/1000
imsi-1: SessionReleased { session: 1 }
imsi-1: Holds guti=999-70-020040-00000001
imsi-1: Deregistered { since: 9 }
imsi-1: Holds guti=999-70-020040-00000001
END
}
# finds SED TEXT: the judge prints TEXT for the history that was edited; without TEXT, nothing.
finds() {
  local found
  found=$(history "$1" | awk -f "$here/histories.awk")
  case $found in
    *"${2:-}"*) [ -n "${2:-}" ] || [ -z "$found" ] && return ;;
  esac
  echo "WRONG: for '$1' it prints '$found', not '${2:-}'"
  bad=1
}
finds ''
# Given to another while its former owner leaves: no contradiction.
finds 's/^(imsi-3: Holds .*)10.45.0.4/\110.45.0.2/'
finds 's/PeriodicRegistrationUpdating/Initial/' 'had to register again'
finds 's/^imsi-1: Idle/imsi-1: IdentityAsked(Suci)/' 'had to identify itself'
finds 's/Discarded.Replayed./Discarded(MacMismatch)/' 'under other keys'
finds 's/^imsi-1: Deregistered.*/imsi-1: Idle/' 'lost its session'
finds 's/^imsi-1: Idle/imsi-1: Refused { }/' 'was refused'
# By value: an older state shows only in the values.
finds '/^imsi-2/s/00000012/00000003/; s/^imsi-3: UserPlane.*/imsi-3: ServiceAccepted/' 'was given meanwhile, guti='
finds '/^imsi-3/s/10.45.0.4/10.45.0.3/' 'was given meanwhile, address='
finds '13s/10.45.0.2/10.45.0.9/' 'had another address before'
finds '13s/gnb1=1:/gnb1=1,2:/' 'another QoS than its gNB'
finds '13s,gnb1=1:1000/1000,gnb1=1:1000/500,' 'another QoS than its gNB'
finds '/^imsi/d' 'no history'
[ "$bad" = 0 ] && echo "a correct history passes, and eleven altered ones do not"
exit "$bad"
