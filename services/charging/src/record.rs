//! Charging records (TS 32.255 §6.1.3), one for each session that was closed, and the sessions that are open.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, Supi};

/// Why a session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClosingCause {
    /// Its consumer released it.
    Released,
    /// Its consumer did not report for two validity times.
    NoReport,
    /// Its consumer began another session with the same identifiers.
    Superseded,
}

impl ClosingCause {
    /// As records name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::NoReport => "no-report",
            Self::Superseded => "superseded",
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        [Self::Released, Self::NoReport, Self::Superseded].into_iter().find(|cause| cause.as_str() == text)
    }
}

/// Usage of a rating group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RatingGroupUsage {
    /// The rating group.
    pub rating_group: u32,
    /// Octets of the uplink.
    pub uplink_octets: u64,
    /// Octets of the downlink.
    pub downlink_octets: u64,
    /// Octets that were charged: those of both directions, or a volume that its consumer gave without directions.
    pub total_octets: u64,
    /// Time of use, in seconds.
    pub time_s: u64,
}

/// The record of a session that was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargingRecord {
    /// Its number, which rises with each record. A session that its consumer reported on after it was closed has a new record.
    pub number: u64,
    /// The identity of the session's resource.
    pub session: Box<str>,
    /// Subscriber of the session.
    pub supi: Supi,
    /// The function that charged. `None`: the SMF of this core.
    pub consumer: Option<Box<str>>,
    /// The charging identifier that the consumer gave.
    pub charging_id: Option<u32>,
    /// The PDU session.
    pub pdu_session_id: Option<u8>,
    /// Data network of the session.
    pub dnn: Option<Box<str>>,
    /// Slice of the session.
    pub s_nssai: Option<Box<str>>,
    /// When charging began.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// Usage of each rating group.
    pub rating_groups: Vec<RatingGroupUsage>,
    /// Why it ended.
    pub cause: ClosingCause,
}

/// The heading of records as CSV (RFC 4180).
pub const CSV_HEADING: &str = "number,session,supi,consumer,charging_id,pdu_session_id,dnn,s_nssai,start,end,uplink_octets,downlink_octets,\
                               total_octets,time_s,rating_groups,cause\r\n";

impl ChargingRecord {
    /// The sum of its rating groups.
    pub fn total(&self) -> RatingGroupUsage {
        self.rating_groups.iter().fold(RatingGroupUsage::default(), |sum, group| RatingGroupUsage {
            rating_group: 0,
            uplink_octets: sum.uplink_octets.saturating_add(group.uplink_octets),
            downlink_octets: sum.downlink_octets.saturating_add(group.downlink_octets),
            total_octets: sum.total_octets.saturating_add(group.total_octets),
            time_s: sum.time_s.saturating_add(group.time_s),
        })
    }

    /// A line of CSV; `time` writes points in time. The rating groups are `group:uplink:downlink:total:seconds`, with spaces between them.
    pub fn csv_line(&self, time: impl Fn(Instant) -> String) -> String {
        let total = self.total();
        let mut groups = String::new();
        for g in &self.rating_groups {
            let space = if groups.is_empty() { "" } else { " " };
            let RatingGroupUsage { rating_group, uplink_octets, downlink_octets, total_octets, time_s } = g;
            let _ = write!(
                groups,
                "{space}{rating_group}:{uplink_octets}:{downlink_octets}:{total_octets}:{time_s}"
            );
        }
        let number = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
        let text = |value: &Option<Box<str>>| field(value.as_deref().unwrap_or_default());
        let fields = [
            self.number.to_string(),
            field(&self.session),
            self.supi.to_string(),
            text(&self.consumer),
            number(self.charging_id),
            number(self.pdu_session_id.map(u32::from)),
            text(&self.dnn),
            text(&self.s_nssai),
            time(self.start),
            time(self.end),
            total.uplink_octets.to_string(),
            total.downlink_octets.to_string(),
            total.total_octets.to_string(),
            total.time_s.to_string(),
            groups,
            self.cause.as_str().to_owned(),
        ];
        fields.join(",") + "\r\n"
    }
}

/// A field of CSV. A leading character that a spreadsheet takes for a formula is preceded by an apostrophe: consumers choose their names.
fn field(text: &str) -> String {
    // A record stays on its line.
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let guard = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    match text.contains([',', '"']) {
        true => format!("\"{guard}{}\"", text.replace('"', "\"\"")),
        false => format!("{guard}{text}"),
    }
}

/// A session that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    /// The identity of its resource.
    pub session: Box<str>,
    /// The function that charges. `None`: the SMF of this core.
    pub consumer: Option<Box<str>>,
    /// The PDU session.
    pub pdu_session_id: Option<u8>,
    /// Data network of the session.
    pub dnn: Option<Box<str>>,
    /// Slice of the session.
    pub s_nssai: Option<Box<str>>,
    /// When charging began.
    pub start: Instant,
    /// Octets that are reserved for it.
    pub reserved_octets: u64,
    /// Usage of each rating group.
    pub rating_groups: Vec<RatingGroupUsage>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_csv_is_no_formula_and_no_further_field() {
        assert_eq!(field("internet"), "internet");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("=1+2"), "'=1+2");
        assert_eq!(field("a\r\n7"), "a  7");
    }

    #[test]
    fn a_line_of_csv_has_the_fields_of_the_heading() {
        let group = RatingGroupUsage {
            rating_group: 1,
            uplink_octets: 2,
            downlink_octets: 3,
            total_octets: 5,
            time_s: 7,
        };
        let record = ChargingRecord {
            number: 1,
            session: "ab".into(),
            supi: "imsi-999700000000001".parse().unwrap(),
            consumer: None,
            charging_id: Some(9),
            pdu_session_id: Some(5),
            dnn: Some("internet".into()),
            s_nssai: Some("1".into()),
            start: Instant(1),
            end: Instant(2),
            rating_groups: vec![group, RatingGroupUsage { rating_group: 2, ..group }],
            cause: ClosingCause::Released,
        };
        let line = record.csv_line(|at| at.0.to_string());
        assert_eq!(
            line,
            "1,ab,imsi-999700000000001,,9,5,internet,1,1,2,4,6,10,14,1:2:3:5:7 2:2:3:5:7,released\r\n"
        );
        assert_eq!(line.split(',').count(), CSV_HEADING.split(',').count());
    }
}
