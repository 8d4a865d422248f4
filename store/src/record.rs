//! A subscriber: identity, keys and subscription.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use whimbrel_ids::{Instant, ParseIdError, Supi};
use whimbrel_security::{
    AkaFunctions, AuthenticationManagementField, K, K256, LongTermKey, Milenage, Op, Opc, Sqn, SqnOffset,
    Top, Topc, Tuak,
};

use crate::forms::{AmfDigits, Count, HexDigits, LongTermKeyDigits, Text, TextForm};
use crate::subscription::{InvalidSubscription, Subscription};
use crate::text::{self, from_hex, serde_as_text, to_hex};

/// The operator's part of the key material: its own constant, or that constant bound to the subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCode {
    /// OP, common to an operator's USIMs.
    Op(Op),
    /// OPc, the subscriber's own.
    Opc(Opc),
    /// TOP, the constant of TUAK.
    Top(Top),
    /// TOPc, the subscriber's own under TUAK.
    Topc(Topc),
}

impl OperatorCode {
    /// The algorithm that it belongs to.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            OperatorCode::Op(_) | OperatorCode::Opc(_) => Algorithm::Milenage,
            OperatorCode::Top(_) | OperatorCode::Topc(_) => Algorithm::Tuak,
        }
    }

    /// Its name in JSON and CSV, and its octets.
    pub(crate) fn field(&self) -> (&'static str, &[u8]) {
        match self {
            OperatorCode::Op(op) => ("op", op.octets()),
            OperatorCode::Opc(opc) => ("opc", opc.octets()),
            OperatorCode::Top(top) => ("top", top.octets()),
            OperatorCode::Topc(topc) => ("topc", topc.octets()),
        }
    }

    /// Of the texts of the four, of which exactly one is given.
    pub(crate) fn read(
        op: Option<&str>,
        opc: Option<&str>,
        top: Option<&str>,
        topc: Option<&str>,
    ) -> Result<Self, InvalidRecord> {
        const E: fn(&'static str) -> InvalidRecord = InvalidRecord::Key;
        const T: fn(&'static str) -> InvalidRecord = InvalidRecord::LongKey;
        match (op, opc, top, topc) {
            (Some(op), None, None, None) => Ok(Self::Op(Op::new(from_hex(op).ok_or(E("op"))?))),
            (None, Some(opc), None, None) => Ok(Self::Opc(Opc::new(from_hex(opc).ok_or(E("opc"))?))),
            (None, None, Some(top), None) => Ok(Self::Top(Top::new(from_hex(top).ok_or(T("top"))?))),
            (None, None, None, Some(topc)) => Ok(Self::Topc(Topc::new(from_hex(topc).ok_or(T("topc"))?))),
            _ => Err(InvalidRecord::OperatorCode),
        }
    }
}

/// K of its text: 32 hexadecimal digits, or 64 under TUAK.
pub(crate) fn long_term_key(text: &str, algorithm: Algorithm) -> Result<LongTermKey, InvalidRecord> {
    match (from_hex(text), from_hex(text), algorithm) {
        (Some(k), ..) => Ok(K::new(k).into()),
        (None, Some(k), Algorithm::Tuak) => Ok(LongTermKey::K256(K256::new(k))),
        _ => Err(InvalidRecord::Key("k")),
    }
}

/// How a subscriber is authenticated (TS 29.503 §6.3.6.3.2 names it `authenticationMethod`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum AuthMethod {
    /// 5G-AKA (TS 33.501 §6.1.3.2).
    #[default]
    #[serde(rename = "5g-aka")]
    FiveGAka,
    /// EAP-AKA' (TS 33.501 §6.1.3.1).
    #[serde(rename = "eap-aka-prime")]
    EapAkaPrime,
}

impl fmt::Display for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthMethod::FiveGAka => "5g-aka",
            AuthMethod::EapAkaPrime => "eap-aka-prime",
        })
    }
}

impl FromStr for AuthMethod {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        match s {
            "5g-aka" => Ok(Self::FiveGAka),
            "eap-aka-prime" => Ok(Self::EapAkaPrime),
            _ => Err(ParseIdError { expected: "a method of authentication: 5g-aka or eap-aka-prime" }),
        }
    }
}

/// Authentication algorithm (TS 29.503 §6.3.6.3.2 names it `algorithmId`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Algorithm {
    /// Milenage, as TS 35.206 defines it.
    #[default]
    Milenage,
    /// TUAK, as TS 35.231 defines it.
    Tuak,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::Milenage => f.write_str("milenage"),
            Algorithm::Tuak => f.write_str("tuak"),
        }
    }
}

impl FromStr for Algorithm {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError = ParseIdError { expected: "an algorithm: milenage or tuak" };
        let named = [("milenage", Self::Milenage), ("tuak", Self::Tuak)];
        named.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(s)).map(|(_, a)| a).ok_or(E)
    }
}

/// Whether a subscriber may register.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SubscriberStatus {
    /// The subscriber may register.
    #[default]
    Enabled,
    /// Is refused (TS 23.502 §4.2.2.2.2, operator determined barring).
    Barred,
}

impl fmt::Display for SubscriberStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SubscriberStatus::Enabled => "enabled",
            SubscriberStatus::Barred => "barred",
        })
    }
}

impl FromStr for SubscriberStatus {
    type Err = ParseIdError;

    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        match s {
            "enabled" => Ok(Self::Enabled),
            "barred" => Ok(Self::Barred),
            _ => Err(ParseIdError { expected: "a status: enabled or barred" }),
        }
    }
}

/// MSISDN, the public number of a subscriber: 5 to 15 digits (TS 23.003 §3.3; GPSI: §28.8).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Msisdn(Box<str>);

impl Msisdn {
    /// The digits of the number.
    pub fn digits(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Msisdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Redacted, as a SUPI is.
impl fmt::Debug for Msisdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Msisdn(…)")
    }
}

impl FromStr for Msisdn {
    type Err = ParseIdError;

    /// Reads `msisdn-49170123456`, `+49170123456` or the digits alone.
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        let digits = s.strip_prefix("msisdn-").or(s.strip_prefix('+')).unwrap_or(s);
        if (5..=15).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit()) {
            Ok(Self(digits.into()))
        } else {
            Err(ParseIdError { expected: "an MSISDN of 5 to 15 digits, such as 49170123456" })
        }
    }
}

serde_as_text!(Msisdn);

impl TextForm for Msisdn {
    const PATTERN: &'static str = "^(msisdn-|\\+)?[0-9]{5,15}$";
}

/// A subscriber.
///
/// `Debug` shows no key and no identity. `Serialize` writes no key: see [`WithSecrets`] for an export that does.
/// `Deserialize` needs `supi`, `k` and one of `op`, `opc`, `top` and `topc`; everything else has a default.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawRecord")]
pub struct SubscriberRecord {
    /// SUPI of the subscriber.
    pub supi: Supi,
    /// The permanent key K.
    pub k: LongTermKey,
    /// OP or OPc, TOP or TOPc.
    pub operator_code: OperatorCode,
    /// Authentication management field of vectors; its separation bit is set.
    pub amf: AuthenticationManagementField,
    /// Authentication algorithm: that of the operator code.
    pub algorithm: Algorithm,
    /// Method of authentication.
    pub auth: AuthMethod,
    /// What is added to the time to give SEQ (TS 33.102 Annex C).
    pub sqn_offset: SqnOffset,
    /// Whether the subscriber may register.
    pub status: SubscriberStatus,
    /// The public number (MSISDN).
    pub msisdn: Option<Msisdn>,
    /// What may be used.
    pub subscription: Arc<Subscription>,
}

/// A record that the store refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRecord {
    /// A key is not 32 hexadecimal digits; which one.
    Key(&'static str),
    /// Not 64 hexadecimal digits; which one.
    LongKey(&'static str),
    /// None of OP, OPc, TOP and TOPc, or more than one.
    OperatorCode,
    /// The algorithm is not the one that the operator code belongs to, or K is too long for it.
    Algorithm,
    /// The AMF field is not 4 hexadecimal digits with the separation bit set.
    Amf,
    /// The subscription is not valid.
    Subscription(InvalidSubscription),
}

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(name) => write!(f, "{name} must be 32 hexadecimal digits"),
            Self::LongKey(name) => write!(f, "{name} must be 64 hexadecimal digits"),
            Self::OperatorCode => {
                f.write_str("give exactly one of opc and op, or under TUAK of topc and top")
            }
            Self::Algorithm => f.write_str("algorithm is milenage with op or opc, tuak with top or topc"),
            Self::Amf => {
                f.write_str("amf must be 4 hexadecimal digits of which the first is 8 to f (separation bit)")
            }
            Self::Subscription(e) => fmt::Display::fmt(e, f),
        }
    }
}

impl core::error::Error for InvalidRecord {}

impl From<InvalidSubscription> for InvalidRecord {
    fn from(e: InvalidSubscription) -> Self {
        Self::Subscription(e)
    }
}

impl SubscriberRecord {
    /// A subscriber with all defaults: AMF 8000, Milenage, enabled, slice 1, DNN `internet`; its SEQ begins now, at 1.
    pub fn new(supi: Supi, k: impl Into<LongTermKey>, operator_code: OperatorCode) -> Self {
        Self {
            supi,
            k: k.into(),
            amf: AuthenticationManagementField::FIVE_G,
            algorithm: operator_code.algorithm(),
            auth: AuthMethod::default(),
            operator_code,
            sqn_offset: fresh_sqn_offset(),
            status: SubscriberStatus::default(),
            msisdn: None,
            subscription: Arc::default(),
        }
    }

    /// The authentication functions of this subscriber.
    /// `None` for Milenage with a key of 256 bits, which no store takes.
    pub fn functions(&self) -> Option<AkaFunctions> {
        let short = match &self.k {
            LongTermKey::K128(k) => Some(k),
            LongTermKey::K256(_) => None,
        };
        Some(match &self.operator_code {
            OperatorCode::Op(op) => Milenage::from_op(short?, op).into(),
            OperatorCode::Opc(opc) => Milenage::new(short?, opc.clone()).into(),
            OperatorCode::Top(top) => Tuak::from_top(self.k.clone(), top).into(),
            OperatorCode::Topc(topc) => Tuak::new(self.k.clone(), topc.clone()).into(),
        })
    }

    /// Whether the store takes it.
    pub fn check(&self) -> Result<(), InvalidRecord> {
        if !self.amf.separation_bit() {
            return Err(InvalidRecord::Amf);
        }
        let long = matches!(self.k, LongTermKey::K256(_));
        if self.algorithm != self.operator_code.algorithm() || long && self.algorithm == Algorithm::Milenage {
            return Err(InvalidRecord::Algorithm);
        }
        Ok(self.subscription.check()?)
    }
}

/// The offset of a subscriber that begins now.
pub(crate) fn fresh_sqn_offset() -> SqnOffset {
    sqn_offset_after(Sqn::ZERO)
}

/// The offset of a subscriber for which another authentication centre has issued SQNs up to this one: SEQ continues after
/// it.
pub(crate) fn sqn_offset_after(issued: Sqn) -> SqnOffset {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    SqnOffset::with_seq_at(Instant(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)), issued.seq() + 1)
}

/// A subscriber with its keys; exactly one of `opc` and `op` is needed, or under TUAK of `topc` and `top`.
// Its texts of keys are short-lived; the octets that they become are wiped.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewSubscriber")]
pub(crate) struct RawRecord {
    /// SUPI, such as `imsi-999700000000001`.
    #[serde(with = "text")]
    #[schemars(with = "Text<Supi>")]
    pub(crate) supi: Supi,
    /// Permanent key, 32 hexadecimal digits, or 64 under TUAK.
    #[schemars(with = "LongTermKeyDigits")]
    pub(crate) k: String,
    /// OP of Milenage, instead of OPc.
    #[serde(default)]
    #[schemars(with = "Option<HexDigits<16>>")]
    pub(crate) op: Option<String>,
    /// OPc of Milenage.
    #[serde(default)]
    #[schemars(with = "Option<HexDigits<16>>")]
    pub(crate) opc: Option<String>,
    /// TOP of TUAK, instead of TOPc.
    #[serde(default)]
    #[schemars(with = "Option<HexDigits<32>>")]
    pub(crate) top: Option<String>,
    /// TOPc of TUAK.
    #[serde(default)]
    #[schemars(with = "Option<HexDigits<32>>")]
    pub(crate) topc: Option<String>,
    /// Authentication management field, 4 hexadecimal digits; its separation bit is set.
    #[serde(default)]
    #[schemars(with = "Option<AmfDigits>")]
    pub(crate) amf: Option<String>,
    /// Authentication algorithm: that of the operator code.
    #[serde(default)]
    pub(crate) algorithm: Option<Algorithm>,
    /// Method of authentication.
    #[serde(default)]
    pub(crate) auth: AuthMethod,
    /// Added to the time to give SEQ (TS 33.102 Annex C).
    #[serde(default)]
    #[schemars(with = "Option<Count>")]
    pub(crate) sqn_offset: Option<u64>,
    /// Barred subscribers may not register.
    #[serde(default)]
    pub(crate) status: SubscriberStatus,
    /// The public number (MSISDN).
    #[serde(default)]
    #[schemars(with = "Option<Text<Msisdn>>")]
    pub(crate) msisdn: Option<Msisdn>,
    /// The data of the subscription; the default is slice 1 with the DNN `internet`.
    #[serde(default)]
    pub(crate) subscription: Arc<Subscription>,
}

impl Drop for RawRecord {
    fn drop(&mut self) {
        use zeroize::Zeroize;
        self.k.zeroize();
        self.op.zeroize();
        self.opc.zeroize();
        self.top.zeroize();
        self.topc.zeroize();
    }
}

impl TryFrom<RawRecord> for SubscriberRecord {
    type Error = InvalidRecord;

    fn try_from(raw: RawRecord) -> Result<Self, InvalidRecord> {
        let operator_code = OperatorCode::read(
            raw.op.as_deref(),
            raw.opc.as_deref(),
            raw.top.as_deref(),
            raw.topc.as_deref(),
        )?;
        let amf = match &raw.amf {
            Some(amf) => AuthenticationManagementField(from_hex(amf).ok_or(InvalidRecord::Amf)?),
            None => AuthenticationManagementField::FIVE_G,
        };
        let record = Self {
            supi: raw.supi,
            k: long_term_key(&raw.k, operator_code.algorithm())?,
            amf,
            algorithm: raw.algorithm.unwrap_or(operator_code.algorithm()),
            auth: raw.auth,
            operator_code,
            sqn_offset: raw.sqn_offset.map_or_else(fresh_sqn_offset, SqnOffset::new),
            status: raw.status,
            msisdn: raw.msisdn.clone(),
            subscription: Arc::clone(&raw.subscription),
        };
        record.check()?;
        Ok(record)
    }
}

impl Serialize for SubscriberRecord {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.written(false).serialize(s)
    }
}

/// Serializes a record with its keys, so that an import can read it back.
#[derive(Clone, Copy, Debug)]
pub struct WithSecrets<'a>(pub &'a SubscriberRecord);

impl Serialize for WithSecrets<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.written(true).serialize(s)
    }
}

/// A subscriber without its keys.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Subscriber")]
struct WrittenRecord<'a> {
    /// SUPI of the subscriber.
    supi: String,
    /// The key K, in an export alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    k: Option<String>,
    /// The operator code OP, in an export alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    op: Option<String>,
    /// The operator code OPc, in an export alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    opc: Option<String>,
    /// The operator code TOP, in an export alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    top: Option<String>,
    /// The operator code TOPc, in an export alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    topc: Option<String>,
    /// Authentication management field, 4 hexadecimal digits.
    amf: String,
    /// Authentication algorithm of the subscriber.
    algorithm: Algorithm,
    /// Method of authentication.
    auth: AuthMethod,
    /// Added to the time to give SEQ (TS 33.102 Annex C).
    sqn_offset: u64,
    /// Barred subscribers may not register.
    status: SubscriberStatus,
    /// The public number (MSISDN), if the subscriber has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    msisdn: Option<&'a Msisdn>,
    /// The data of the subscription.
    subscription: &'a Subscription,
}

impl SubscriberRecord {
    fn written(&self, secrets: bool) -> WrittenRecord<'_> {
        let (name, octets) = self.operator_code.field();
        let code = |of: &str| (secrets && name == of).then(|| to_hex(octets));
        WrittenRecord {
            supi: self.supi.to_string(),
            k: secrets.then(|| to_hex(self.k.octets())),
            op: code("op"),
            opc: code("opc"),
            top: code("top"),
            topc: code("topc"),
            amf: to_hex(&self.amf.0),
            algorithm: self.algorithm,
            auth: self.auth,
            sqn_offset: self.sqn_offset.value(),
            status: self.status,
            msisdn: self.msisdn.as_ref(),
            subscription: &self.subscription,
        }
    }
}

/// The form that is read has the keys; the form that is written has not.
impl JsonSchema for SubscriberRecord {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SubscriberRecord".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        match generator.contract().is_serialize() {
            true => generator.subschema_for::<WrittenRecord<'static>>(),
            false => generator.subschema_for::<RawRecord>(),
        }
    }
}
