//! Subscribers of srsRAN 4G's HSS: `user_db.csv`, a line for each, without a heading. Ten fields: name, algorithm, IMSI, K, `op` or `opc`,
//! its value, AMF, SQN, QCI, and `dynamic` or an IPv4 address.

use serde_json::{Map, Value, json};
use whimbrel_security::Sqn;

use crate::csv::RowError;
use crate::import::ImportProblem;
use crate::record::sqn_offset_after;
use crate::text::from_hex;

/// Fields of a line.
const FIELDS: usize = 10;

/// A line of the list.
pub(super) enum ListedUe {
    /// The IMSI and the JSON of a record of ours.
    Record(String, Value),
    /// A subscriber with an algorithm that no core of 5G has.
    Xor(String),
    Problem(ImportProblem),
}

pub(super) fn line(fields: Result<Vec<String>, RowError>, notes: &mut Vec<String>) -> ListedUe {
    let fields = match fields {
        Ok(fields) => fields,
        Err(e) => return ListedUe::Problem(e.into()),
    };
    let [name, algorithm, imsi, k, code, value, amf, sqn, qci, address] = match <[String; FIELDS]>::try_from(
        fields,
    ) {
        Ok(fields) => fields,
        Err(fields) => {
            return ListedUe::Problem(ImportProblem::Json(format!(
                "{} fields where user_db.csv has {FIELDS}: Name,Auth,IMSI,Key,OP_Type,OP/OPc,AMF,SQN,QCI,IP_alloc",
                fields.len()
            )));
        }
    };
    let problem = |why: String| ListedUe::Problem(ImportProblem::Document { subscriber: imsi.clone(), why });
    match algorithm.as_str() {
        "mil" => {}
        "xor" => return ListedUe::Xor(imsi),
        other => return problem(format!("the algorithm `{other}` must be mil or xor")),
    }
    if !matches!(code.as_str(), "op" | "opc") {
        return problem(format!("`{code}` must be op or opc"));
    }
    let Some(sqn) = from_hex::<6>(&sqn) else { return problem("SQN must be 12 hexadecimal digits".into()) };
    let Ok(five_qi) = qci.parse::<u8>() else { return problem("QCI must be a number, such as 9".into()) };
    let mut dnn = json!({ "dnn": "internet", "default": true, "five_qi": five_qi });
    if address != "dynamic" {
        dnn["ipv4"] = json!(address);
    }
    notes.push(
        "user_db.csv has no slice, no data network and no rates: slice 1 with the DNN `internet` and 1 Gbit/s is subscribed.".into(),
    );
    if !name.is_empty() {
        notes.push("The names of the first column are left out, because subscribers have none here.".into());
    }
    let mut record = Map::new();
    record.insert("supi".into(), json!(imsi));
    record.insert("k".into(), json!(k));
    record.insert(code, json!(value));
    record.insert("amf".into(), json!(amf));
    record.insert("sqn_offset".into(), json!(sqn_offset_after(Sqn::from_octets(sqn)).value()));
    record.insert(
        "subscription".into(),
        json!({ "slices": [{ "s_nssai": "1", "default": true, "dnns": [dnn] }] }),
    );
    ListedUe::Record(imsi, Value::Object(record))
}
