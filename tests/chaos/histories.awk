# Read your writes: what a phone was told holds until it, or its end, was told otherwise.
#
# By what happens: a phone that is registered does not find itself registering from nothing, nor is it asked who it is; a session that is up goes
# with the phone's deregistration, and not before; nothing comes under other keys than the phone's.
# By value (lines `Holds`): a 5G-GUTI, and the address of a session, are one phone's at a time; a session keeps its address; its gNB is told the
# QoS flows and rates that the phone was told, whenever its user plane is set up. That no NAS COUNT is used again the phone judges itself.
#
# In: what `whimbrel ran -v` tells of phones. Out: a line for each answer that contradicts an earlier one.
function wrong(what) { print phone, what ":", $0 }

# What the phone holds from now on, NAME=VALUE with a space around each.
function holds(new,   old, n, parts) {
  n = split(has[phone], parts, " ")
  for (; n > 0; n--) if (!index(new, " " parts[n] " ")) {
    delete rival[phone, parts[n]]
    if (owner[parts[n]] == phone) delete owner[parts[n]]
  }
  has[phone] = new
}

# What only one phone has at a time. Who had it before may be about to say that it has left; who goes on with it contradicts this.
function owns(what) {
  if ((what in owner) && owner[what] != phone) rival[owner[what], what] = phone
  owner[what] = phone
  delete rival[phone, what]
}

!/^imsi-/ { next }
{ phone = $1; what = $2; told++ }
what == "Holds" && !on[phone] { next }
what == "Holds" {
  line = " "
  for (n = 3; n <= NF; n++) line = line $n " "
  for (n = 3; n <= NF; n++) {
    at = index($n, "=")
    name = substr($n, 1, at - 1)
    value = substr($n, at + 1)
    alone = name == "guti" ? $n : name ~ /^address/ && value != "none" ? "address=" value : ""
    if (alone != "") {
      if (served[phone] && (phone, alone) in rival) wrong("has what " rival[phone, alone] " was given meanwhile, " alone)
      line = line alone " "
      owns(alone)
    }
    if (name ~ /^address/ && match(has[phone], " " name "=[^ ]*") && index(has[phone], " " $n " ") == 0) wrong("had another address before")
    if (name ~ /^gnb/) {
      qos = " qos" substr(name, 4) "="
      if (index(line, qos) && !index(line, qos value " ")) wrong("was told another QoS than its gNB")
    }
  }
  holds(line)
  next
}
{ served[phone] = what ~ /^(Registered|ServiceAccepted|SessionUp|HandedOver)$/ || /up: true/ }
what == "Refused" { wrong("was refused") }
what == "Registered" && /kind: Initial/ { if (on[phone]) wrong("was registered and had to register anew"); on[phone] = 1 }
what == "IdentityAsked(Suci)" && on[phone] { wrong("was registered and had to say who it is") }
what ~ /^Discarded\((MacMismatch|NoContext)\)/ { wrong("was sent something under other keys than its own") }
what == "SessionReleased" { gone[phone] = $0; next }
what == "Deregistered" { on[phone] = 0; delete gone[phone]; holds(" ") }
(phone in gone) { print phone, "lost its session:", gone[phone]; delete gone[phone] }
END { if (!told) print "there is no history" }
