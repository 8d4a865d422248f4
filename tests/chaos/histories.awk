# Read your writes: what a phone was told holds until it, or its end, was told otherwise. A phone that is registered does not
# find itself registering from nothing; a session that is up goes with the phone's deregistration, and not before.
# In: what `whimbrel ran -v` tells of phones. Out: a line for each answer that contradicts an earlier one.
!/^imsi-/ { next }
{ phone = $1; what = $2; told++ }
what == "Refused" { print phone, "was refused:", $0 }
what == "Registered" && /kind: Initial/ { if (on[phone]) print phone, "was registered and had to register anew:", $0; on[phone] = 1 }
what == "SessionUp" { up[phone] = 1 }
what == "SessionReleased" { gone[phone] = $0; next }
what == "Deregistered" { on[phone] = 0; up[phone] = 0; delete gone[phone] }
(phone in gone) { print phone, "lost its session:", gone[phone]; delete gone[phone] }
END { if (!told) print "there is no history" }
