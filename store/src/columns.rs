//! The columns of a CSV import: a subscriber with one slice is described by plain columns, any other by a
//! JSON object in `subscription`. Headings of SIM vendors' lists and of other cores are accepted as aliases.

use core::str::FromStr;
use std::sync::Arc;

use whimbrel_ids::{Dnn, FiveQi, SNssai, Supi};
use whimbrel_security::{AuthenticationManagementField, LongTermKey, Opc, Sqn, SqnOffset};

use crate::bit_rate::BitRate;
use crate::import::ImportProblem;
use crate::record::{
    Algorithm, AuthMethod, InvalidRecord, Msisdn, OperatorCode, SubscriberRecord, SubscriberStatus,
    fresh_sqn_offset, long_term_key, sqn_offset_after,
};
use crate::subscription::{DnnConfiguration, SessionType, SubscribedSlice, Subscription};
use crate::text::from_hex;

/// A column of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Supi,
    K,
    Op,
    Opc,
    Top,
    Topc,
    Amf,
    Algorithm,
    Auth,
    Sqn,
    SqnOffset,
    Status,
    Msisdn,
    Slice,
    Dnn,
    SessionType,
    FiveQi,
    ArpPriorityLevel,
    UeAmbrUplink,
    UeAmbrDownlink,
    SessionAmbrUplink,
    SessionAmbrDownlink,
    Ipv4,
    Ipv6,
    Rfsp,
    Subscription,
}

use Column as C;

/// All columns, with their names in the header.
const COLUMNS: [(Column, &str); 26] = [
    (C::Supi, "supi"),
    (C::K, "k"),
    (C::Op, "op"),
    (C::Opc, "opc"),
    (C::Top, "top"),
    (C::Topc, "topc"),
    (C::Amf, "amf"),
    (C::Algorithm, "algorithm"),
    (C::Auth, "auth"),
    (C::Sqn, "sqn"),
    (C::SqnOffset, "sqn_offset"),
    (C::Status, "status"),
    (C::Msisdn, "msisdn"),
    (C::Slice, "slice"),
    (C::Dnn, "dnn"),
    (C::SessionType, "session_type"),
    (C::FiveQi, "five_qi"),
    (C::ArpPriorityLevel, "arp_priority_level"),
    (C::UeAmbrUplink, "ue_ambr_uplink"),
    (C::UeAmbrDownlink, "ue_ambr_downlink"),
    (C::SessionAmbrUplink, "session_ambr_uplink"),
    (C::SessionAmbrDownlink, "session_ambr_downlink"),
    (C::Ipv4, "ipv4"),
    (C::Ipv6, "ipv6"),
    (C::Rfsp, "rfsp"),
    (C::Subscription, "subscription"),
];

/// Other headings of some columns, in the form of [`normalise_heading`].
const ALIASES: [(&str, Column); 7] = [
    ("imsi", C::Supi),
    ("ki", C::K),
    ("key", C::K),
    ("gpsi", C::Msisdn),
    ("snssai", C::Slice),
    ("apn", C::Dnn),
    ("5qi", C::FiveQi),
];

/// Normalises a heading for comparison: letters and digits only, in lower case.
fn normalise_heading(heading: &str) -> String {
    heading.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The column of a heading.
fn column_of(heading: &str) -> Option<Column> {
    let heading = normalise_heading(heading);
    let own = COLUMNS.iter().find(|(_, name)| normalise_heading(name) == heading).map(|(column, _)| *column);
    own.or_else(|| ALIASES.iter().find(|(name, _)| *name == heading).map(|(_, column)| *column))
}

/// The columns that `subscription` replaces.
const SUBSCRIPTION_COLUMNS: [Column; 12] = [
    C::Slice,
    C::Dnn,
    C::SessionType,
    C::FiveQi,
    C::ArpPriorityLevel,
    C::UeAmbrUplink,
    C::UeAmbrDownlink,
    C::SessionAmbrUplink,
    C::SessionAmbrDownlink,
    C::Ipv4,
    C::Ipv6,
    C::Rfsp,
];

impl Column {
    fn name(self) -> &'static str {
        COLUMNS[self as usize].1
    }
}

/// The header line: which column stands where.
pub(crate) struct ColumnHeader {
    /// The field of each column, by the column's number.
    field_of_column: [Option<usize>; COLUMNS.len()],
    field_count: usize,
    ignored: Vec<String>,
    /// The previous row's subscription and its fields: mostly the next row has the same.
    previous_row: Option<(Vec<String>, Arc<Subscription>)>,
}

impl ColumnHeader {
    pub(crate) fn read(fields: &[String]) -> Result<Self, ImportProblem> {
        let mut place = [None; COLUMNS.len()];
        let mut ignored = Vec::new();
        for (at, heading) in fields.iter().enumerate() {
            let Some(column) = column_of(heading) else {
                ignored.extend((!heading.is_empty()).then(|| heading.clone()));
                continue;
            };
            if place[column as usize].replace(at).is_some() {
                return Err(ImportProblem::ColumnTwice(column.name()));
            }
        }
        if place.iter().all(Option::is_none) {
            return Err(ImportProblem::NoHeader);
        }
        let header = Self { field_of_column: place, field_count: fields.len(), ignored, previous_row: None };
        match [C::Supi, C::K].into_iter().find(|c| header.field_of_column[*c as usize].is_none()) {
            Some(absent) => Err(ImportProblem::NoColumn(absent.name())),
            None => Ok(header),
        }
    }

    /// The headings of columns that are not imported.
    pub(crate) fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The record of a row.
    pub(crate) fn record(&mut self, fields: &[String]) -> Result<SubscriberRecord, ImportProblem> {
        // Spreadsheets append separators beyond the last heading.
        let more = fields.get(self.field_count..).unwrap_or_default();
        if fields.len() < self.field_count || more.iter().any(|f| !f.is_empty()) {
            return Err(ImportProblem::FieldCount { found: fields.len(), expected: self.field_count });
        }
        let row = ImportRow { field_of_column: &self.field_of_column, fields };
        let supi = row.read_digits::<Supi>(C::Supi)?.ok_or(ImportProblem::Missing("supi"))?;
        let (op, opc) = (row.text(C::Op), row.text(C::Opc));
        let op_beside_opc = op.filter(|_| opc.is_some());
        let op = op.filter(|_| op_beside_opc.is_none());
        let operator_code = OperatorCode::read(op, opc, row.text(C::Top), row.text(C::Topc))
            .map_err(ImportProblem::Record)?;
        let algorithm = operator_code.algorithm();
        let amf = match row.text(C::Amf) {
            Some(amf) => {
                AuthenticationManagementField(from_hex(amf).ok_or(ImportProblem::Record(InvalidRecord::Amf))?)
            }
            None => AuthenticationManagementField::FIVE_G,
        };
        let k = long_term_key(row.text(C::K).ok_or(ImportProblem::Missing("k"))?, algorithm)
            .map_err(ImportProblem::Record)?;
        if let Some(op) = op_beside_opc {
            check_opc(&k, op, &operator_code)?;
        }
        let record = SubscriberRecord {
            supi,
            k,
            operator_code,
            amf,
            algorithm: row.parse_id::<Algorithm>(C::Algorithm)?.unwrap_or(algorithm),
            auth: row.parse_id::<AuthMethod>(C::Auth)?.unwrap_or_default(),
            sqn_offset: row.sqn_offset()?,
            status: row.parse_id::<SubscriberStatus>(C::Status)?.unwrap_or_default(),
            msisdn: row.read_digits::<Msisdn>(C::Msisdn)?,
            subscription: self.subscription(fields)?,
        };
        record.check().map_err(ImportProblem::Record)?;
        Ok(record)
    }

    fn subscription(&mut self, fields: &[String]) -> Result<Arc<Subscription>, ImportProblem> {
        let row = ImportRow { field_of_column: &self.field_of_column, fields };
        let says = || {
            SUBSCRIPTION_COLUMNS.iter().chain([&C::Subscription]).map(|c| row.text(*c).unwrap_or_default())
        };
        if let Some((_, subscription)) = self.previous_row.as_ref().filter(|(last, _)| says().eq(last.iter()))
        {
            return Ok(Arc::clone(subscription));
        }
        let subscription = Arc::new(row.subscription()?);
        self.previous_row = Some((says().map(str::to_owned).collect(), Arc::clone(&subscription)));
        Ok(subscription)
    }
}

/// A row under its header.
struct ImportRow<'a> {
    field_of_column: &'a [Option<usize>; COLUMNS.len()],
    fields: &'a [String],
}

impl ImportRow<'_> {
    /// The field of a column, unless absent or empty.
    fn text(&self, column: Column) -> Option<&str> {
        let field = self.fields.get(self.field_of_column[column as usize]?)?.as_str();
        (!field.is_empty()).then_some(field)
    }

    fn value<T: FromStr>(
        &self,
        column: Column,
        expected: impl FnOnce(T::Err) -> &'static str,
    ) -> Result<Option<T>, ImportProblem> {
        let parse = |t: &str| {
            t.parse().map_err(|e| ImportProblem::Field { column: column.name(), expected: expected(e) })
        };
        self.text(column).map(parse).transpose()
    }

    fn parse_id<T: FromStr<Err = whimbrel_ids::ParseIdError>>(
        &self,
        column: Column,
    ) -> Result<Option<T>, ImportProblem> {
        self.value(column, |e: whimbrel_ids::ParseIdError| e.expected)
    }

    /// An identifier of digits: people write it in groups, and spreadsheets round it.
    fn read_digits<T: FromStr<Err = whimbrel_ids::ParseIdError>>(
        &self,
        column: Column,
    ) -> Result<Option<T>, ImportProblem> {
        let Some(text) = self.text(column) else { return Ok(None) };
        if text.contains("E+") || text.contains("e+") {
            return Err(ImportProblem::Rounded(column.name()));
        }
        let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        digits.parse().map(Some).map_err(|e: whimbrel_ids::ParseIdError| ImportProblem::Field {
            column: column.name(),
            expected: e.expected,
        })
    }

    /// From the column `sqn_offset`, or from the last SQN of another authentication centre.
    fn sqn_offset(&self) -> Result<SqnOffset, ImportProblem> {
        let offset: Option<u64> = self.value(C::SqnOffset, |_| "a whole number")?;
        let expected = ImportProblem::Field { column: C::Sqn.name(), expected: "12 hexadecimal digits" };
        match (offset, self.text(C::Sqn)) {
            (Some(_), Some(_)) => Err(ImportProblem::SqnTwice),
            (Some(offset), None) => Ok(SqnOffset::new(offset)),
            (None, Some("0")) | (None, None) => Ok(fresh_sqn_offset()),
            (None, Some(sqn)) => from_hex(sqn).map(Sqn::from_octets).map(sqn_offset_after).ok_or(expected),
        }
    }

    fn subscription(&self) -> Result<Subscription, ImportProblem> {
        if let Some(json) = self.text(C::Subscription) {
            if let Some(other) = SUBSCRIPTION_COLUMNS.into_iter().find(|c| self.text(*c).is_some()) {
                return Err(ImportProblem::SubscriptionTwice(other.name()));
            }
            return serde_json::from_str(json).map_err(|e| ImportProblem::Subscription(e.to_string()));
        }
        let mut subscription =
            Subscription { rfsp: self.value(C::Rfsp, |_| "1 to 256")?, ..Subscription::default() };
        self.set_rate_if_given(C::UeAmbrUplink, &mut subscription.ue_ambr.uplink)?;
        self.set_rate_if_given(C::UeAmbrDownlink, &mut subscription.ue_ambr.downlink)?;
        let s_nssai = self.parse_id::<SNssai>(C::Slice)?.unwrap_or(SNssai::sst(1));
        subscription.slices = vec![SubscribedSlice { s_nssai, default: true, dnns: self.dnns()? }];
        Ok(subscription)
    }

    /// The data networks, separated by semicolons or commas; the first is the default and has the static addresses.
    fn dnns(&self) -> Result<Vec<DnnConfiguration>, ImportProblem> {
        let bad = |e: whimbrel_ids::ParseIdError| ImportProblem::Field {
            column: C::Dnn.name(),
            expected: e.expected,
        };
        let mut dnns = Vec::new();
        for name in self.text(C::Dnn).unwrap_or("internet").split([';', ',']) {
            let mut d = DnnConfiguration::new(name.trim().parse::<Dnn>().map_err(bad)?);
            if let Some(only) = self.parse_id::<SessionType>(C::SessionType)? {
                (d.session_type, d.allowed_session_types) = (only, allowed_with(only));
            }
            if let Some(five_qi) = self.value(C::FiveQi, |_| "a number, such as 9")? {
                d.five_qi = FiveQi(five_qi);
            }
            if let Some(level) = self.value(C::ArpPriorityLevel, |_| "1 to 15")? {
                d.arp.priority_level = level;
            }
            self.set_rate_if_given(C::SessionAmbrUplink, &mut d.session_ambr.uplink)?;
            self.set_rate_if_given(C::SessionAmbrDownlink, &mut d.session_ambr.downlink)?;
            if dnns.is_empty() {
                d.default = true;
                d.ipv4 = self.value(C::Ipv4, |_| "an IPv4 address")?;
                d.ipv6 = self.parse_id(C::Ipv6)?;
            }
            dnns.push(d);
        }
        Ok(dnns)
    }

    fn set_rate_if_given(&self, column: Column, rate: &mut BitRate) -> Result<(), ImportProblem> {
        if let Some(given) = self.parse_id(column)? {
            *rate = given;
        }
        Ok(())
    }
}

/// Checks that OPc is derived from K and OP: TS 35.206 §8.2.
fn check_opc(k: &LongTermKey, op: &str, code: &OperatorCode) -> Result<(), ImportProblem> {
    let op = OperatorCode::read(Some(op), None, None, None).map_err(ImportProblem::Record)?;
    match (k, &op, code) {
        (LongTermKey::K128(k), OperatorCode::Op(op), OperatorCode::Opc(opc))
            if Opc::derive(k, op) == *opc =>
        {
            Ok(())
        }
        _ => Err(ImportProblem::OpAgainstOpc),
    }
}

/// A UE whose default is both IP versions may ask for either alone (TS 23.501 §5.8.2.2.1).
fn allowed_with(session_type: SessionType) -> Vec<SessionType> {
    match session_type {
        SessionType::Ipv4v6 => vec![SessionType::Ipv4, SessionType::Ipv6, SessionType::Ipv4v6],
        only => vec![only],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_in_the_order_of_their_numbers() {
        assert!(COLUMNS.iter().enumerate().all(|(i, (c, _))| *c as usize == i));
    }

    #[test]
    fn a_heading_is_of_one_column() {
        let own = COLUMNS.iter().map(|(_, name)| normalise_heading(name));
        let mut all: Vec<String> = own.chain(ALIASES.iter().map(|(name, _)| (*name).to_owned())).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(ALIASES.iter().all(|(name, _)| normalise_heading(name) == *name));
    }
}
