# Read your writes: what a UE was sent holds until the UE, or the other end, is sent something else.
#
# By event: a registered UE does not have to register initially again, and gets no IDENTITY REQUEST; a session that is up ends
# with the UE's deregistration, and not before; no message comes under other keys than the UE's.
# By value (lines `Holds`): a 5G-GUTI, and the address of a session, belong to one UE at a time; a session keeps its address; its gNB gets the
# QoS flows and rates that the UE got, whenever its user plane is set up. NAS COUNT reuse is checked by the UE itself.
#
# In: the lines of `whimbrel-lab ran -v`. Out: a line for each answer that contradicts an earlier one.
function wrong(what) { print ue, what ":", $0 }

# What the UE holds from now on, NAME=VALUE with a space around each.
function holds(new,   old, n, parts) {
  n = split(has[ue], parts, " ")
  for (; n > 0; n--) if (!index(new, " " parts[n] " ")) {
    delete rival[ue, parts[n]]
    if (owner[parts[n]] == ue) delete owner[parts[n]]
  }
  has[ue] = new
}

# What only one UE has at a time. Its former owner may be about to report that it has left; if it continues with it, that is a contradiction.
function owns(what) {
  if ((what in owner) && owner[what] != ue) rival[owner[what], what] = ue
  owner[what] = ue
  delete rival[ue, what]
}

!/^imsi-/ { next }
{ ue = $1; what = $2; lines++ }
what == "Holds" && !on[ue] { next }
what == "Holds" {
  line = " "
  for (n = 3; n <= NF; n++) line = line $n " "
  for (n = 3; n <= NF; n++) {
    at = index($n, "=")
    name = substr($n, 1, at - 1)
    value = substr($n, at + 1)
    alone = name == "guti" ? $n : name ~ /^address/ && value != "none" ? "address=" value : ""
    if (alone != "") {
      if (served[ue] && (ue, alone) in rival) wrong("has what " rival[ue, alone] " was given meanwhile, " alone)
      line = line alone " "
      owns(alone)
    }
    if (name ~ /^address/ && match(has[ue], " " name "=[^ ]*") && index(has[ue], " " $n " ") == 0) wrong("had another address before")
    if (name ~ /^gnb/) {
      qos = " qos" substr(name, 4) "="
      if (index(line, qos) && !index(line, qos value " ")) wrong("got another QoS than its gNB")
    }
  }
  holds(line)
  next
}
{ served[ue] = what ~ /^(Registered|ServiceAccepted|SessionUp|HandedOver)$/ || /up: true/ }
what == "Refused" { wrong("was refused") }
what == "Registered" && /kind: Initial/ { if (on[ue]) wrong("was registered and had to register again"); on[ue] = 1 }
what == "IdentityAsked(Suci)" && on[ue] { wrong("was registered and had to identify itself") }
what ~ /^Discarded\((MacMismatch|NoContext)\)/ { wrong("got a message under other keys than its own") }
what == "SessionReleased" { gone[ue] = $0; next }
what == "Deregistered" { on[ue] = 0; delete gone[ue]; holds(" ") }
(ue in gone) { print ue, "lost its session:", gone[ue]; delete gone[ue] }
END { if (!lines) print "there is no history" }
