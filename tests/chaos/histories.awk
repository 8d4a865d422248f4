# Read your writes: what a UE was told holds until it, or its end, was told otherwise.
#
# By what happens: a UE that is registered does not find itself registering from nothing, nor is it asked who it is; a session that is up goes
# with the UE's deregistration, and not before; nothing comes under other keys than the UE's.
# By value (lines `Holds`): a 5G-GUTI, and the address of a session, are one UE's at a time; a session keeps its address; its gNB is told the
# QoS flows and rates that the UE was told, whenever its user plane is set up. That no NAS COUNT is used again the UE judges itself.
#
# In: what `whimbrel ran -v` tells of UEs. Out: a line for each answer that contradicts an earlier one.
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

# What only one UE has at a time. Who had it before may be about to say that it has left; who goes on with it contradicts this.
function owns(what) {
  if ((what in owner) && owner[what] != ue) rival[owner[what], what] = ue
  owner[what] = ue
  delete rival[ue, what]
}

!/^imsi-/ { next }
{ ue = $1; what = $2; told++ }
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
      if (index(line, qos) && !index(line, qos value " ")) wrong("was told another QoS than its gNB")
    }
  }
  holds(line)
  next
}
{ served[ue] = what ~ /^(Registered|ServiceAccepted|SessionUp|HandedOver)$/ || /up: true/ }
what == "Refused" { wrong("was refused") }
what == "Registered" && /kind: Initial/ { if (on[ue]) wrong("was registered and had to register anew"); on[ue] = 1 }
what == "IdentityAsked(Suci)" && on[ue] { wrong("was registered and had to say who it is") }
what ~ /^Discarded\((MacMismatch|NoContext)\)/ { wrong("was sent something under other keys than its own") }
what == "SessionReleased" { gone[ue] = $0; next }
what == "Deregistered" { on[ue] = 0; delete gone[ue]; holds(" ") }
(ue in gone) { print ue, "lost its session:", gone[ue]; delete gone[ue] }
END { if (!told) print "there is no history" }
