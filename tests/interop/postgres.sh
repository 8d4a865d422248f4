#!/usr/bin/env bash
# Two cores with the subscribers of one PostgreSQL database (Debian's server): what is added through one is in force at the other; while PostgreSQL is
# dead, UEs register at both, also after a restart, and provisioning is refused in one sentence; of two edits at once one is refused; an
# older backup is noticed, and what it lost is brought back. Users, tokens, audit logs and charging records of one home are at the other, and the key is
# rotated while both run. In a network namespace of its own.
#
# Usage: postgres.sh     tests `$WHIMBREL`; exit status 0 good, 77 this host cannot run it (the last line says why)
set -euo pipefail
tools=(curl)
logs=(north.log south.log twin.log play.log postgres.log command.log)
. "$(dirname "$0")/../netns.sh"

programs=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
[ -x "$programs/initdb" ] || skip "PostgreSQL's server is not installed"
other_user=(unshare --user --map-user=65534 --map-group=65534) # the server refuses to run as root
"${other_user[@]}" true 2>/dev/null || skip "user namespaces are not permitted here"
export PGHOST=$tmp PGUSER=whimbrel

"${other_user[@]}" "$programs/initdb" -D "$tmp/data" -U whimbrel -A trust --locale=C -E UTF8 >"$tmp/postgres.log" 2>&1 ||
  setup_failed "initdb fails"
postgres() { # starts it
  for _ in $(seq 5); do # a killed server's processes may still be there for a moment
    "${other_user[@]}" "$programs/postgres" -D "$tmp/data" -k "$tmp" -c listen_addresses= -c fsync=off 2>>"$tmp/postgres.log" &
    postgres=$!
    running+=("$postgres")
    for _ in $(seq 200); do
      "$programs/pg_isready" -q && return
      kill -0 "$postgres" 2>/dev/null || break
      sleep 0.05
    done
    sleep 0.2
  done
  wrong "PostgreSQL does not start"
}
postgres_dies() {
  kill -9 "$postgres"
  wait "$postgres" 2>/dev/null || true
  rm -f "$tmp/data/postmaster.pid"
}
sql() { "$programs/psql" -XAtq -v ON_ERROR_STOP=1 -d whimbrel -c "$1"; }
postgres
"$programs/createdb" whimbrel || setup_failed "no database can be made"

cat >"$tmp/upf.yaml" <<END
n3: { address: 127.0.0.33 }
n4: { listen: "127.0.0.33:8805", smfs: ["127.0.0.31:8805", "127.0.0.32:8805"] }
n6: { device: both, nat: false }
data_networks: [{ dnn: internet, ipv4_pool: 10.50.0.0/16, ipv6_pool: none }]
api: { address: "127.0.0.1:8083" }
store: { path: $tmp/upf.db, key_file: $tmp/upf.key }
END
(umask 077; head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$tmp/all.key") # of all homes
# configure NAME ADDRESS POINTER API [SLOT]
configure() {
  cp -p "$tmp/all.key" "$tmp/$1.key"
  cat >"$tmp/$1.yaml" <<END
amf: { pointer: $3 }
n2: { addresses: [$2] }
n3: { address: $2 }
n4: { node_id: $2 }
upfs: [{ name: both, address: "127.0.0.33:8805" }]
api: { address: "127.0.0.1:$4" }
store:
  path: $tmp/$1.db
  key_file: $tmp/$1.key
  keep_ues: always
  postgres: "postgresql://whimbrel@${tmp//\//%2F}/whimbrel"
${5:+  sqn_slot: $5}
data_networks: [{ dnn: internet, ipv4_pool: 10.50.0.0/16, ipv6_pool: none, charging: { rating_group: 1 } }]
sbi: { chf: embedded }
chf: { path: $tmp/$1.charging.db, default_account: postpaid }
END
}
configure north 127.0.0.31 0 8081 0
configure south 127.0.0.32 1 8082
configure twin 127.0.0.34 1 8084
# at NAME COMMAND...: a command of the operator at one of the homes.
at() { "$WHIMBREL" "${@:2}" --config "$tmp/$1.yaml" >"$tmp/command.log" 2>&1; }
# refused NAME TEXT COMMAND...: the command fails with one sentence that says so.
refused() {
  ! at "$1" "${@:3}" || wrong "not refused: ${*:3}"
  grep -q "$2" "$tmp/command.log" || wrong "$1 refuses otherwise: $(cat "$tmp/command.log")"
  [ "$(wc -l <"$tmp/command.log")" = 1 ] || wrong "more than one sentence: $(cat "$tmp/command.log")"
}
# says NAME TEXT: waits until `whimbrel why postgres` there says it.
says() {
  for _ in $(seq 400); do
    at "$1" why postgres && grep -q "$2" "$tmp/command.log" && return
    sleep 0.02
  done
  wrong "$1 does not say \"$2\" of PostgreSQL, but: $(cat "$tmp/command.log")"
}
# in_force NAME: waits until the last change is in force there.
in_force() { says "$1" "change $(sql 'SELECT generation FROM whimbrel.state') of PostgreSQL"; }
# registers ADDRESS FILE: its UEs register at that core, and leave.
registers() { timeout 60 "$WHIMBREL_LAB" ran "$tmp/$2.yaml" --amf "$1" --imsi "${first[$2]}" >"$tmp/play.log" 2>&1; }
declare -A first=([some]=999700000000001 [one]=999700000000900)
for file in some one; do
  printf 'ues: %s\ngnbs: 1\nsteps: [register, deregister]\n' "$([ $file = some ] && echo 4 || echo 1)" >"$tmp/$file.yaml"
done
printf 'ues: 4\ngnbs: 1\nsteps: [register]\n' >"$tmp/stay.yaml"
printf 'ues: 4\ngnbs: 1\nsteps: [register, session, deregister]\n' >"$tmp/charged.yaml"
first[stay]=${first[some]} first[charged]=${first[some]}
for file in some one; do
  "$WHIMBREL_LAB" ran "$tmp/$file.yaml" --imsi "${first[$file]}" --write-subscribers "$tmp/$file.csv" >/dev/null
done
ue=imsi-${first[some]} added=imsi-${first[one]}

api() { curl -s --unix-socket "$tmp/$1.db.socket" "http://localhost/api/v1/subscribers/$ue" "${@:2}"; }
ues() { curl -s --unix-socket "$tmp/$1.db.socket" -o /dev/null -w '%{http_code}' "http://localhost/api/v1/ues/$ue"; }
serves() { [ "$(ues "$1")" = 200 ]; }
# leaves NAME: waits until that home has no context of the UE, and sets `took` to the milliseconds.
leaves() {
  local begun=$(date +%s%N)
  for _ in $(seq 200); do
    serves "$1" || { took=$((($(date +%s%N) - begun) / 1000000)); return; }
    sleep 0.02
  done
  wrong "$1 serves the UE on, though it has registered at the other home"
}
rows() { sql "SELECT count(*) FROM whimbrel.registration WHERE amf = '99970-02004$1'"; }
# written NUMBER NUMBER: waits until PostgreSQL has so many registrations at north and at south, and no deregistration that waits.
written() {
  for _ in $(seq 250); do
    [ "$(rows 0) $(rows 1) $(sql 'SELECT count(*) FROM whimbrel.deregistration')" = "$1 $2 0" ] && return
    sleep 0.02
  done
  wrong "PostgreSQL has other registrations than $1 at north and $2 at south: $(sql 'TABLE whimbrel.registration; TABLE whimbrel.deregistration')"
}

start upf upf
start north run
north=$!
start south run
south=$!
await north "the UPF answers"
await south "the UPF answers"

# 1. Added through one, in force at the other.
at north subscriber import "$tmp/some.csv" || wrong "no import: $(cat "$tmp/command.log")"
begun=$(date +%s%N)
in_force south
echo "4 subscribers that were imported at north are in force at south after $((($(date +%s%N) - begun) / 1000000)) ms"
registers 127.0.0.32 some || wrong "UEs that were added through north cannot register at south"
registers 127.0.0.31 some || wrong "UEs cannot register at north after south: their SQNs"
registers 127.0.0.32 some || wrong "UEs cannot register at south after north: their SQNs"

# 2. PostgreSQL is dead.
postgres_dies
registers 127.0.0.31 some || wrong "UEs of north wait for PostgreSQL"
registers 127.0.0.32 some || wrong "UEs of south wait for PostgreSQL"
refused north "PostgreSQL cannot be reached .* no subscriber can be changed; UEs are served on" subscriber edit "$ue" --status barred
says south "PostgreSQL cannot be reached"
at south why "$added" || true
grep -q "It may have been added elsewhere since: PostgreSQL cannot be reached" "$tmp/command.log" || wrong "why does not say that: $(cat "$tmp/command.log")"
kill "$south"
wait "$south" || wrong "south does not stop in order"
start south run
south=$!
await south " ready" 2
registers 127.0.0.32 some || wrong "south serves no UEs after a restart without PostgreSQL"
echo "PostgreSQL is dead: UEs register at both, one of which was restarted; $(refused north . subscriber remove "$ue"; cat "$tmp/command.log")"
postgres
in_force north
in_force south

# 3. Two edits at once: both are prepared on what both have, and wait for the same lock.
mkfifo "$tmp/hold"
"$programs/psql" -XAtq -d whimbrel <"$tmp/hold" >/dev/null &
running+=($!)
exec 9>"$tmp/hold"
echo "BEGIN; SELECT * FROM whimbrel.state FOR UPDATE;" >&9
waiting="SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
for home in north south; do
  number=$([ $home = north ] && echo 49111111 || echo 49222222)
  {
    status=0
    "$WHIMBREL" subscriber edit "$ue" --msisdn "$number" --config "$tmp/$home.yaml" >"$tmp/edit.$home" 2>&1 || status=$?
    echo "$status" >"$tmp/status.$home"
  } &
done
for _ in $(seq 400); do [ "$(sql "$waiting")" = 2 ] && break; sleep 0.01; done
echo "ROLLBACK;" >&9
exec 9>&-
for home in north south; do
  for _ in $(seq 400); do [ -s "$tmp/status.$home" ] && break; sleep 0.02; done
done
[ "$(cat "$tmp/status.north" "$tmp/status.south" | sort | tr -d '\n')" = 01 ] || wrong "not one of two edits was refused: $(cat "$tmp"/edit.*)"
grep -q "was changed by another user at the same moment, and your change was not made" "$tmp"/edit.* || wrong "refused otherwise: $(cat "$tmp"/edit.*)"
in_force north
in_force south
shown() { "$WHIMBREL" subscriber show "$ue" --config "$tmp/$1.yaml"; }
[ "$(shown north)" = "$(shown south)" ] || wrong "the homes differ"
winner=$(grep -l 0 "$tmp"/status.* | sed 's/.*\.//')
shown north | grep -q "$([ "$winner" = north ] && echo 49111111 || echo 49222222)" || wrong "the edit that was made is not there"
echo "two edits at once: $(grep -h "was changed by another user" "$tmp"/edit.*)"

# The same through the API: both users have seen the same record.
tag=$(api north -D - -o /dev/null | tr -d '\r' | sed -n 's/^[Ee][Tt]ag: //p')
[ -n "$tag" ] && [ "$tag" = "$(api south -D - -o /dev/null | tr -d '\r' | sed -n 's/^[Ee][Tt]ag: //p')" ] || wrong "the homes give a record different tags"
change() { api "$1" -X PATCH -H "If-Match: $tag" -H 'Content-Type: application/merge-patch+json' -d "{\"msisdn\": \"$2\"}" -w '%{http_code}' -o "$tmp/answer.$1"; }
[ "$(change north 49333333)" = 200 ] || wrong "the first change is refused: $(cat "$tmp/answer.north")"
[ "$(change south 49444444)" = 412 ] || wrong "the second change is not refused: $(cat "$tmp/answer.south")"
grep -o '"detail":"[^"]*"' "$tmp/answer.south"
in_force south
shown south | grep -q 49333333 || wrong "the first change is lost"

# 4. An older backup.
"${other_user[@]}" "$programs/pg_basebackup" -D "$tmp/older" -X stream -c fast || wrong "no backup"
at south subscriber import "$tmp/one.csv" || wrong "no import: $(cat "$tmp/command.log")"
in_force north
registers 127.0.0.31 one || wrong "a UE that was added through south cannot register at north"
registers 127.0.0.31 stay || wrong "UEs cannot register at north"
written 4 0
postgres_dies
rm -r "$tmp/data"
mv "$tmp/older" "$tmp/data"
chmod 700 "$tmp/data"
postgres
for home in north south; do
  says $home "PostgreSQL has lost changes"
  await $home "PostgreSQL has lost changes: .*first $added"
done
grep -o "PostgreSQL has lost changes: .*" "$tmp/north.log"
written 4 0
echo "what the backup had lost of registrations is written again"
registers 127.0.0.31 some || wrong "UEs that the backup has cannot register"
at north store copy "$tmp/north.db.before-loss-1" postgres --on-existing skip || wrong "no copy: $(cat "$tmp/command.log")"
cat "$tmp/command.log"
rm "$tmp"/*.before-loss-1
in_force north
in_force south
registers 127.0.0.32 one || wrong "what the backup had lost is not back"

# 5. To a file, and a file of its own is no replica.
at north store copy postgres "$tmp/own.db" || wrong "no copy: $(cat "$tmp/command.log")"
cat "$tmp/command.log"
sed "/postgres:/d; s|north.db|own.db|" "$tmp/north.yaml" >"$tmp/own.yaml"
at own subscriber edit "$ue" --status barred || wrong "a copied file is not this home's own: $(cat "$tmp/command.log")"
sed "/postgres:/d" "$tmp/north.yaml" >"$tmp/alone.yaml"
refused alone "is the replica of a PostgreSQL database" subscriber edit "$ue" --status barred

# 6. One UDM: a UE that registers at one home leaves the other one, though the two AMFs know nothing of each other.
registers 127.0.0.31 stay || wrong "UEs cannot register at north"
written 4 0
registers 127.0.0.32 stay || wrong "UEs cannot register at south"
leaves north
echo "UEs that register at south are gone from north after $took ms"
serves south || wrong "south has lost the UE, too"
written 0 4
at north why "$ue" || true
grep -q "its subscriber registered again: here with a new context, or at another AMF" "$tmp/command.log" || wrong "why does not say it: $(cat "$tmp/command.log")"
cat "$tmp/command.log"
postgres_dies
registers 127.0.0.31 stay || wrong "UEs of north wait for PostgreSQL"
serves north && serves south || wrong "a home lost the UE while PostgreSQL is away"
sleep 2.5 # UEs that have changed are on the disk within two seconds
kill -9 "$north" "$south"
wait "$north" "$south" 2>/dev/null || true
start north run
north=$!
start south run
south=$!
await north " ready" 2
await south " ready" 3
serves north && serves south || wrong "a home has not restored its UEs after a kill"
postgres
leaves south
written 4 0
serves north || wrong "the later registration, at north, is not in force"
sql "INSERT INTO whimbrel.deregistration SELECT '99970-020040', n::text, n FROM generate_series(1, 5000) n"
sql "INSERT INTO whimbrel.deregistration VALUES ('99970-020040', 'no SUPI', 1), ('99970-020040', '${ue#imsi-}', 1)"
written 4 0
serves north || wrong "rows of another program have deregistered a UE whose registration is in force"
kill "$north"
wait "$north" || wrong "north does not stop in order"
start north run
north=$!
await north " ready" 3
serves north || wrong "north has lost its UEs in a restart"
registers 127.0.0.32 stay || wrong "UEs cannot register at south"
leaves north
written 0 4
registers 127.0.0.32 some
written 0 0
echo "after a death of PostgreSQL and of both homes, the later registration is in force"

# 7. Slots of SQNs are leased, and a second home with the pointer of another changes nothing.
at north store homes || wrong "the homes are not listed: $(cat "$tmp/command.log")"
cat "$tmp/command.log"
[ "$(sql 'SELECT slot FROM whimbrel.sqn_slot ORDER BY amf' | tr '\n' ' ')" = "0 1 " ] || wrong "south has leased no slot"
start twin run
says twin "has the AMF identifier of this one"
refused twin "give one of them another amf.pointer" subscriber edit "$ue" --status barred
registers 127.0.0.34 stay || wrong "a home with the pointer of another serves no UEs"
refused north "the home .* runs, and was not removed" store homes --remove 99970-020041
written 0 0
serves twin || wrong "the second home has lost its UE"
at south subscriber edit "$ue" --msisdn 49555555 || wrong "the first home with a pointer changes nothing: $(cat "$tmp/command.log")"
echo "a home with the pointer of another: $(refused twin . subscriber remove "$ue"; cat "$tmp/command.log")"

# 8. A later version's database, and another key: one sentence each, and UEs are served on.
sql "UPDATE whimbrel.state SET layout = 99"
refused north "have layout 99, which a later version of this program wrote" subscriber edit "$ue" --status barred
sql "UPDATE whimbrel.state SET layout = 3"
(umask 077; echo "$(printf 'ef%.0s' $(seq 32))" >"$tmp/other.key")
sed "s|north.key|other.key|; s|north.db|otherkey.db|" "$tmp/north.yaml" >"$tmp/otherkey.yaml"
refused otherkey "all homes need the same key file" subscriber edit "$ue" --status barred
registers 127.0.0.31 some || wrong "UEs are not served on"
echo "a newer schema and another key file are refused in one sentence"

# 9. Users, tokens, audit logs and charging records of one home are at the other.
# as HOME METHOD PATH [BODY]: a command of the host; prints the status, and leaves the answer in answer.HOME.
as() {
  curl -s --unix-socket "$tmp/$1.db.socket" -X "$2" -H 'Content-Type: application/json' ${4:+-d "$4"} -w '%{http_code}' -o "$tmp/answer.$1" "http://localhost/api/v1/$3"
}
# over API HEADER [METHOD PATH BODY]: the status of a request over the network.
over() { curl -s -o /dev/null -w '%{http_code}' -H "$2" -X "${3:-GET}" -H 'Content-Type: application/json' ${5:+-d "$5"} "http://127.0.0.1:$1/api/v1/${4:-status}"; }
login() { over "$1" "X: x" POST session "{\"name\": \"anna\", \"password\": \"$2\"}"; }
# becomes STATUS COMMAND...: waits until the command prints it, and sets `took` to the milliseconds.
becomes() {
  local begun=$(date +%s%N)
  for _ in $(seq 200); do
    took=$((($(date +%s%N) - begun) / 1000000))
    [ "$("${@:2}")" = "$1" ] && return
    sleep 0.02
  done
  wrong "not $1, but $("${@:2}"): ${*:2}"
}
[ "$(as north POST users '{"name": "anna", "role": "admin", "password": "correct horse"}')" = 201 ] || wrong "no user: $(cat "$tmp/answer.north")"
in_force south # by then no failed login has to wait
[ "$(login 8082 "correct horse")" = 200 ] || wrong "a user of north cannot sign in at south"
[ "$(as north POST tokens '{"name": "metrics", "scopes": ["read"]}')" = 201 ] || wrong "no token: $(cat "$tmp/answer.north")"
token="Authorization: Bearer $(sed 's/.*"token":"\([^"]*\)".*/\1/' "$tmp/answer.north")"
becomes 200 over 8082 "$token"
echo "a token of north is good at south after $took ms"
session="Cookie: $(curl -s -D - -o /dev/null -H 'Content-Type: application/json' -d '{"name": "anna", "password": "correct horse"}' http://127.0.0.1:8081/api/v1/session |
  tr -d '\r' | sed -n 's/^[Ss]et-[Cc]ookie: \([^;]*\).*/\1/p')"
[ "$(over 8081 "$session")" = 200 ] || wrong "anna has no session at north"
[ "$(as south PATCH users/anna '{"password": "another horse"}')" = 200 ] || wrong "no change: $(cat "$tmp/answer.south")"
becomes 401 over 8081 "$session"
echo "a password that is changed at south ends a session at north after $took ms"
[ "$(login 8081 "correct horse")" = 401 ] || wrong "the former password is in force at north"
[ "$(as south DELETE tokens/metrics)" = 204 ] || wrong "the token is not removed: $(cat "$tmp/answer.south")"
becomes 401 over 8081 "$token"
echo "a token that is revoked at south is refused at north after $took ms"
postgres_dies
[ "$(login 8081 "another horse")" = 200 ] || wrong "anna cannot sign in at north while PostgreSQL is away"
[ "$(as north POST users '{"name": "olaf", "role": "viewer", "password": "third horse"}')" = 503 ] || wrong "a user is added without PostgreSQL"
grep -o '"detail":"PostgreSQL cannot be reached[^"]*"' "$tmp/answer.north" || wrong "refused otherwise: $(cat "$tmp/answer.north")"
registers 127.0.0.31 charged || wrong "no sessions at north while PostgreSQL is away: $(tail -n 3 "$tmp/play.log")"
[ "$(as north GET 'audit?homes=all')" = 503 ] || wrong "the audit logs of all homes are read without PostgreSQL"
[ "$(as north GET audit)" = 200 ] || wrong "north's own audit log is not read without PostgreSQL"
kill -9 "$north"
wait "$north" 2>/dev/null || true
start north run
north=$!
await north " ready" 4
postgres
in_force north
in_force south
audited() {
  as south GET 'audit?homes=all&limit=500' >/dev/null
  grep -o 'POST /api/v1/users[^,]* outcome=503 home=[^,]* at ' "$tmp/answer.south" | wc -l
}
becomes 1 audited
charged() { "$WHIMBREL" charging records --all-homes --csv --config "$tmp/south.yaml" | grep -c "imsi-.*,internet,.* at " || true; }
becomes 4 charged
echo "what north did while PostgreSQL was away, before it was killed, is read at south: a refused user, and $(charged) charging records"

# 10. The key is rotated while both run.
at north store rotate-key || wrong "no rotation: $(cat "$tmp/command.log")"
cat "$tmp/command.log"
in_force north
registers 127.0.0.31 some || wrong "UEs cannot register at north after the rotation"
says south "is not the one that sealed the subscribers in PostgreSQL"
refused south "all homes need the same key file" subscriber edit "$ue" --status barred
registers 127.0.0.32 some || wrong "UEs cannot register at south, which has the former key"
[ "$(login 8082 "another horse")" = 200 ] || wrong "anna cannot sign in at south, which has the former key"
cp "$tmp/north.key" "$tmp/south.key"
in_force south
at south subscriber edit "$ue" --msisdn 49666666 || wrong "south changes nothing with the new key: $(cat "$tmp/command.log")"
for home in north south; do
  in_force $home
  at $home store rotate-key --drop-former || wrong "the former key stays at $home: $(cat "$tmp/command.log")"
  [ "$(wc -l <"$tmp/$home.key")" = 1 ] || wrong "$home has two keys"
done
registers 127.0.0.31 some || wrong "UEs cannot register at north with the new key alone"
registers 127.0.0.32 some || wrong "UEs cannot register at south with the new key alone"
at north store copy postgres "$tmp/moved.db" || wrong "no copy: $(cat "$tmp/command.log")"
grep -q "subscribers were copied .*, and 1 users" "$tmp/command.log" || wrong "the user is not copied: $(cat "$tmp/command.log")"
cat "$tmp/command.log"

# 11. A limit of three UEs in a slice is that of both homes.
kill "$north" "$south"
wait "$north" "$south" || wrong "the homes do not stop in order"
for home in north south; do echo 'access: { slice_limits: ["1@3"] }' >>"$tmp/$home.yaml"; done
start north run
north=$!
start south run
south=$!
await north " ready" 5
await south " ready" 4
shares() { sql "SELECT coalesce(sum(share), 0) || ' ' || coalesce(sum(used), 0) FROM whimbrel.slice_share"; }
# admitted: the UEs that both homes have; more than the limit is wrong.
admitted() {
  local all=0 home
  for home in north south; do
    all=$((all + $(curl -s --unix-socket "$tmp/$home.db.socket" "http://localhost/api/v1/ues" | grep -oi '"state":"registered"' | wc -l)))
  done
  [ "$all" -le 3 ] || wrong "$all UEs are admitted, and the limit is 3"
  echo "$all"
}
for _ in $(seq 700); do [ "$(shares)" = "3 0" ] && break; sleep 0.02; done # nothing is leased for ten seconds after a start of the server
[ "$(shares)" = "3 0" ] || wrong "the shares of the limit are $(shares)"
registers 127.0.0.32 one || wrong "south admits no UE within its share"
for _ in $(seq 40); do
  registers 127.0.0.31 stay || true
  [ "$(admitted)" = 3 ] && break
done
[ "$(admitted)" = 3 ] || wrong "$(admitted) UEs are admitted at north, and the limit is 3"
! registers 127.0.0.32 one || wrong "south admits a fourth UE"
postgres_dies
! registers 127.0.0.32 one || wrong "south admits a fourth UE while PostgreSQL is away"
postgres
echo "a limit of 3 admits $(admitted) UEs at two homes, whose shares are $(shares)"
