//! Subscribers as Ella Core keeps them: an SQLite database, `ella.db` in its data folder and in the archive that its backup writes.
//!
//! | table | holds |
//! | --- | --- |
//! | `subscribers` | IMSI, K, OPc, SQN, and the profile |
//! | `profiles` | UE-AMBR |
//! | `policies` | for each profile, slice and data network: 5QI, ARP, session AMBR |
//! | `network_slices`, `data_networks` | S-NSSAI; DNN and pools |
//! | `ip_leases` of type `static` | static addresses |
//! | `subscriber_framed_routes` | networks behind the UE |
//! | `network_rules` | packet filters of policies, which permit and deny |

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rusqlite::{Connection, MAIN_DB, Row};
use serde_json::{Map, Value, json};
use whimbrel_security::Sqn;

use super::{ARRAY_OCTETS_MAX, Database, Document, DocumentPosition};
use crate::import::ImportProblem;
use crate::record::sqn_offset_after;
use crate::text::from_hex;

/// The tables that are read.
const TABLES: [&str; 8] = [
    "subscribers",
    "profiles",
    "policies",
    "network_slices",
    "data_networks",
    "ip_leases",
    "subscriber_framed_routes",
    "network_rules",
];
/// Octets of the archive that a backup is (gzip), which is not read itself.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Octets at which SQLite's header names the versions that write and read the file; 2 is write-ahead logging, which a database
/// in memory cannot have.
const JOURNAL_VERSIONS: std::ops::Range<usize> = 18..20;

/// Reads the database. Errors: the file cannot be read.
pub(super) fn read(input: &mut dyn BufRead, file: &Arc<str>, database: &mut Database) -> io::Result<()> {
    let mut octets = Vec::new();
    let read = input.take(ARRAY_OCTETS_MAX).read_to_end(&mut octets)?;
    let place = DocumentPosition { file: file.clone(), line: 1 };
    let problem = |text: String| Document::bad(&place, ImportProblem::Json(text));
    if octets.starts_with(&GZIP) {
        let text =
            "this is the archive of a backup: unpack ella.db first, with `tar xzf FILE ella.db`".into();
        database.documents.push(problem(text));
    } else if read as u64 == ARRAY_OCTETS_MAX {
        database.documents.push(problem("the database is larger than 2 GiB".into()));
    } else if !octets.starts_with(b"SQLite format 3\0") {
        database.documents.push(problem("this is no SQLite database: use Ella Core's ella.db".into()));
    } else {
        octets.get_mut(JOURNAL_VERSIONS).unwrap_or_default().fill(1);
        match opened(&octets).and_then(|opened| match opened {
            Ok(connection) => subscribers(&connection, file, database).map(Ok),
            Err(table) => Ok(Err(table)),
        }) {
            Ok(Ok(())) => {}
            Ok(Err(table)) => {
                let text =
                    format!("this is no database of a present Ella Core: the table {table} is missing");
                database.documents.push(problem(text));
            }
            Err(e) => database.documents.push(problem(format!("this database cannot be read: {e}"))),
        }
    }
    Ok(())
}

/// The database in memory, or the name of a table that it lacks. A view of a table's name is none: its query might never end.
fn opened(octets: &[u8]) -> rusqlite::Result<Result<Connection, &'static str>> {
    let mut connection = Connection::open_in_memory()?;
    connection.deserialize_read_exact(MAIN_DB, octets, octets.len(), true)?;
    for table in TABLES {
        let query = "SELECT COUNT(*) = 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if !connection.query_row(query, [table], |row| row.get(0))? {
            return Ok(Err(table));
        }
    }
    Ok(Ok(connection))
}

/// A policy in the form of a DNN, and the slice that it is of.
struct PolicyDnn {
    s_nssai: String,
    network: String,
    dnn: Value,
    rules: i64,
}

/// Addresses and routes of a subscriber in one data network.
#[derive(Default)]
struct NetworkParts {
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    routes: Vec<String>,
}

fn subscribers(connection: &Connection, file: &Arc<str>, database: &mut Database) -> rusqlite::Result<()> {
    let policies = policies(connection)?;
    let mut parts = network_parts(connection)?;
    let mut statement = connection.prepare(
        "SELECT s.imsi, s.permanentKey, s.opc, s.sequenceNumber, s.profileID, p.ueAmbrUplink, p.ueAmbrDownlink, p.allow5G \
         FROM subscribers s JOIN profiles p ON p.id = s.profileID ORDER BY s.imsi",
    )?;
    let mut rows = statement.query(())?;
    let mut line = 0;
    while let Some(row) = rows.next()? {
        line += 1;
        let place = DocumentPosition { file: file.clone(), line };
        let imsi: String = row.get(0)?;
        let of_profile = policies.get(&row.get::<_, String>(4)?).map(Vec::as_slice).unwrap_or_default();
        let mut notes = Vec::new();
        let record = record(&imsi, row, of_profile, &mut parts, &mut notes)?;
        database.notes.add(&place, &imsi, notes);
        database.documents.push(Document::good(&place, &imsi, record));
    }
    Ok(())
}

/// The policies by the profiles that have them.
fn policies(connection: &Connection) -> rusqlite::Result<BTreeMap<String, Vec<PolicyDnn>>> {
    let mut statement = connection.prepare(
        "SELECT o.profileID, n.sst, n.sd, d.name, d.ipPool, d.ipv6Pool, o.var5qi, o.arp, o.sessionAmbrUplink, o.sessionAmbrDownlink, \
         o.isDefault, d.id, (SELECT COUNT(*) FROM network_rules r WHERE r.policy_id = o.id) \
         FROM policies o JOIN network_slices n ON n.id = o.sliceID JOIN data_networks d ON d.id = o.dataNetworkID \
         ORDER BY o.isDefault DESC, o.name",
    )?;
    let mut policies: BTreeMap<String, Vec<PolicyDnn>> = BTreeMap::new();
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let (sst, sd): (u8, Option<String>) = (row.get(1)?, row.get(2)?);
        let sd = sd.filter(|sd| !sd.is_empty());
        let has_pool = |column| -> rusqlite::Result<bool> {
            Ok(row.get::<_, Option<String>>(column)?.is_some_and(|pool| !pool.is_empty()))
        };
        let types: &[&str] = match (has_pool(4)?, has_pool(5)?) {
            (true, true) => &["IPV4V6", "IPV4", "IPV6"],
            (false, true) => &["IPV6"],
            _ => &["IPV4"],
        };
        let dnn = json!({
            "dnn": row.get::<_, String>(3)?,
            "session_type": types[0],
            "allowed_session_types": types,
            "five_qi": row.get::<_, u8>(6)?,
            "arp": { "priority_level": row.get::<_, u8>(7)? },
            "session_ambr": { "uplink": row.get::<_, String>(8)?, "downlink": row.get::<_, String>(9)? },
        });
        policies.entry(row.get(0)?).or_default().push(PolicyDnn {
            s_nssai: sd.map_or_else(|| sst.to_string(), |sd| format!("{sst}-{sd}")),
            network: row.get(11)?,
            dnn,
            rules: row.get(12)?,
        });
    }
    Ok(policies)
}

type PartsByNetwork = BTreeMap<(String, String), NetworkParts>;

fn network_parts(connection: &Connection) -> rusqlite::Result<PartsByNetwork> {
    let mut parts = PartsByNetwork::new();
    let mut statement = connection
        .prepare("SELECT imsi, poolID, poolType, addressBin FROM ip_leases WHERE type = 'static'")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let of = parts.entry((row.get(0)?, row.get(1)?)).or_default();
        let octets: Vec<u8> = row.get(3)?;
        let Ok(octets) = <[u8; 16]>::try_from(octets) else { continue };
        let address = Ipv6Addr::from(octets);
        match row.get::<_, String>(2)?.as_str() {
            "ipv6" => of.ipv6 = Some(address),
            _ => of.ipv4 = address.to_ipv4_mapped(),
        }
    }
    let mut statement = connection
        .prepare("SELECT imsi, dataNetworkID, prefix FROM subscriber_framed_routes ORDER BY prefix")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        parts.entry((row.get(0)?, row.get(1)?)).or_default().routes.push(row.get(2)?);
    }
    Ok(parts)
}

/// The JSON of a record of ours.
fn record(
    imsi: &str,
    row: &Row<'_>,
    policies: &[PolicyDnn],
    parts: &mut PartsByNetwork,
    notes: &mut Vec<String>,
) -> rusqlite::Result<Value> {
    let mut record = Map::new();
    record.insert("supi".into(), json!(imsi));
    record.insert("k".into(), json!(row.get::<_, String>(1)?));
    record.insert("opc".into(), json!(row.get::<_, String>(2)?));
    if let Some(sqn) = from_hex::<6>(&row.get::<_, String>(3)?) {
        record.insert("sqn_offset".into(), json!(sqn_offset_after(Sqn::from_octets(sqn)).value()));
    }
    let mut slices: Vec<Value> = Vec::new();
    for policy in policies {
        let mut dnn = policy.dnn.clone();
        if policy.rules > 0 {
            notes.push(format!(
                "The network rules of a policy for {} are left out, because they permit and deny packets: the firewall of the data network \
                 does that here, for all its subscribers (docs/firewall.md).",
                dnn["dnn"].as_str().unwrap_or_default()
            ));
        }
        // Each part is of one DNN, though the data network may stand in two slices.
        if let Some(of) = parts.remove(&(imsi.to_owned(), policy.network.clone())) {
            if let Some(address) = of.ipv4 {
                dnn["ipv4"] = json!(address);
            }
            if let Some(address) = of.ipv6 {
                dnn["ipv6"] = json!(super::prefix_of(address));
            }
            if !of.routes.is_empty() {
                dnn["framed_routes"] = json!(of.routes);
            }
        }
        match slices.iter_mut().find(|slice| slice["s_nssai"] == json!(policy.s_nssai)) {
            Some(slice) => {
                dnn["default"] = json!(false);
                if let Some(dnns) = slice["dnns"].as_array_mut() {
                    dnns.push(dnn);
                }
            }
            None => {
                dnn["default"] = json!(true);
                slices.push(json!({ "s_nssai": policy.s_nssai, "default": true, "dnns": [dnn] }));
            }
        }
    }
    if slices.is_empty() {
        notes.push("The profile has no policy for 5G: slice 1 with the DNN `internet` is subscribed.".into());
    }
    let mut subscription = json!({
        "ue_ambr": { "uplink": row.get::<_, String>(5)?, "downlink": row.get::<_, String>(6)? },
    });
    if !slices.is_empty() {
        subscription["slices"] = slices.into();
    }
    if !row.get::<_, bool>(7)? {
        record.insert("status".into(), json!("barred"));
        notes.push("The profile does not allow 5G: the subscriber is imported as barred.".into());
    }
    record.insert("subscription".into(), subscription);
    Ok(Value::Object(record))
}
