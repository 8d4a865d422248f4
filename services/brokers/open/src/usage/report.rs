//! A traffic report: what one party of a session has measured up to the end of one cycle (chapter 3.4.3).

use whimbrel_broker_common::envelope::TAG_OCTETS;
use whimbrel_broker_common::signed_message;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};
use zeroize::Zeroizing;

use crate::crypto::{PrivateKey, SAP, Seed, Signature, Signed, SigningKey};
use crate::id::{Domain, OperatorId, Pseudonym};
use crate::msg::{
    EpochKey, MessageField, SapMessageType, emit_part, read_flag, read_part, read_signature, whole,
};

/// The party that measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportedBy {
    /// The user, in its modem.
    User = 1,
    /// The operator, in its UPF.
    Operator = 2,
}

/// What was measured of one direction. Octets and packets are totals since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Octets of IP packets: of the uplink what the user sent or the operator received, of the downlink what
    /// the operator sent or the user received.
    pub octets: u64,
    /// Number of packets.
    pub packets: u64,
    /// Packets that the party knows to be lost on the radio.
    pub lost: u64,
    /// Mean rate in this cycle, in kbit/s.
    pub kbps: u32,
    /// Mean delay in this cycle, in microseconds; 0: not measured.
    pub delay_us: u32,
}

impl Direction {
    /// The highest number of octets or packets that is read: 2^50, a thousand times what the fastest UE moves in the longest grant. Sums of
    /// two never overflow.
    pub const COUNT_MAX: u64 = 1 << 50;

    /// The share of packets that was lost, in millionths.
    pub fn loss_ppm(&self) -> u64 {
        let sent = self.packets.saturating_add(self.lost);
        if sent == 0 { 0 } else { (u128::from(self.lost) * 1_000_000 / u128::from(sent)) as u64 }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        for count in [self.octets, self.packets, self.lost] {
            out.extend_from_slice(&count.to_be_bytes());
        }
        out.extend_from_slice(&self.kbps.to_be_bytes());
        out.extend_from_slice(&self.delay_us.to_be_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "usage of a direction";
        let mut count = || {
            let too_high = r.error(DecodeErrorKind::InvalidValue, IE);
            let count = r.u64(IE)?;
            if count > Self::COUNT_MAX { Err(too_high) } else { Ok(count) }
        };
        let (octets, packets, lost) = (count()?, count()?, count()?);
        Ok(Self { octets, packets, lost, kbps: r.u32(IE)?, delay_us: r.u32(IE)? })
    }
}

/// A traffic report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The party that measured.
    pub by: ReportedBy,
    /// Domain of the broker.
    pub broker: Domain,
    /// Pseudonym of the session.
    pub pseudonym: Pseudonym,
    /// Identity of the operator.
    pub operator: OperatorId,
    /// The number of the cycle, from 1.
    pub cycle: u32,
    /// The end of the cycle since the session began, in milliseconds.
    pub end_ms: u64,
    /// How long the cycle was, in milliseconds; at most `end_ms`.
    pub duration_ms: u32,
    /// No PDU session is open at the end of the cycle.
    pub closed: bool,
    /// From the user.
    pub uplink: Direction,
    /// To the user.
    pub downlink: Direction,
}

impl Report {
    /// The highest relative time: a year. No grant is valid for longer.
    pub const END_MS_MAX: u64 = 366 * 86_400_000;

    /// The octets that the party signs.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::UsageReport.begin();
        out.push(self.by as u8);
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.pseudonym.0);
        self.operator.emit(&mut out);
        out.extend_from_slice(&self.cycle.to_be_bytes());
        out.extend_from_slice(&self.end_ms.to_be_bytes());
        out.extend_from_slice(&self.duration_ms.to_be_bytes());
        out.push(u8::from(self.closed));
        self.uplink.emit(&mut out);
        self.downlink.emit(&mut out);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "usage report";
        SapMessageType::UsageReport.read(r)?;
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let by = match r.u8(IE)? {
            1 => ReportedBy::User,
            2 => ReportedBy::Operator,
            _ => return Err(invalid),
        };
        let (broker, pseudonym) = (Domain::read(r)?, Pseudonym(r.array(IE)?));
        let operator = OperatorId::read(r)?;
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let (cycle, end_ms, duration_ms) = (r.u32(IE)?, r.u64(IE)?, r.u32(IE)?);
        if cycle == 0 || end_ms > Self::END_MS_MAX || u64::from(duration_ms) > end_ms {
            return Err(invalid);
        }
        let closed = read_flag(r, IE)?;
        let (uplink, downlink) = (Direction::read(r)?, Direction::read(r)?);
        Ok(Self { by, broker, pseudonym, operator, cycle, end_ms, duration_ms, closed, uplink, downlink })
    }

    /// Signs it as the party that measured.
    pub fn sign(self, key: &SigningKey) -> SignedReport {
        SignedReport { report: self, signature: Signature::NONE }.with_signature(key)
    }
}

/// A report and the signature of the party that measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedReport {
    /// The report that is signed.
    pub report: Report,
    /// The user's signature with the key of its SIM, the operator's with that of its certificate.
    pub signature: Signature,
}

impl SignedReport {
    /// The longest, in octets.
    pub const OCTETS_MAX: usize = 2 + 1 + 1 + Domain::OCTETS_MAX + 16 + 10 + 4 + 8 + 4 + 1 + 2 * 32 + 64;

    fn signed_octets(&self) -> Vec<u8> {
        self.report.to_octets()
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { report: Report::read(r)?, signature: read_signature(r)? })
    }

    /// Seals it to the broker. `None` if the broker's key is of small order.
    pub fn seal(&self, to: &EpochKey, seed: &Seed) -> Option<SealedReport> {
        let plain = Zeroizing::new(self.to_octets());
        let (enc, sealed, _) = SAP.seal(&to.public, &info(to.id), seed, |_| (plain, Vec::new()))?;
        Some(SealedReport { key_id: to.id, enc, sealed })
    }
}

signed_message!(SignedReport as Signed::UsageReport);

fn info(key_id: u8) -> Vec<u8> {
    let mut info = b"SAP-v1 usage report ".to_vec();
    info.push(key_id);
    info
}

/// A report that the broker alone can read. Neither the operator nor the air learns from it what the user measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedReport {
    /// Which key of the broker's.
    pub key_id: u8,
    /// The encapsulated key.
    pub enc: [u8; 32],
    /// The sealed [`SignedReport`].
    pub sealed: Box<[u8]>,
}

impl SealedReport {
    const SEALED_MAX: usize = SignedReport::OCTETS_MAX + TAG_OCTETS;
    /// The longest, in octets.
    pub const OCTETS_MAX: usize = 2 + 1 + 32 + 2 + Self::SEALED_MAX;

    /// Opens it as the broker. `None` if it was not sealed to this key, or holds no report.
    pub fn open(&self, key: &PrivateKey) -> Option<SignedReport> {
        let (plain, _) = SAP.open(key, &self.enc, &info(self.key_id), &self.sealed, &[])?;
        SignedReport::parse(&plain).ok()
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::SealedReport.begin();
        out.push(self.key_id);
        out.extend_from_slice(&self.enc);
        emit_part(&self.sealed, &mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            SapMessageType::SealedReport.read(r)?;
            let (key_id, enc) = (r.u8("key identifier")?, r.array("encapsulated key")?);
            Ok(Self { key_id, enc, sealed: read_part(r, Self::SEALED_MAX, "sealed report")?.into() })
        })
    }
}
