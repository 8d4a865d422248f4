//! Elements that are one number, and the small ones of fixed form.

use whimbrel_ids::{DecodeErrorKind, Dnn, Instant, Qfi, Reader, SNssai};

use crate::codec::{Ie, code, flags, number};
use crate::error::Error;
use crate::ie::identity::{read_name, write_labels};

number! {
    /// Names a packet detection rule within its session (TS 29.244 §8.2.36).
    pub struct PdrId(u16): "PDR ID";
    /// Names a forwarding action rule within its session (TS 29.244 §8.2.74).
    pub struct FarId(u32): "FAR ID";
    /// Names a usage reporting rule within its session (TS 29.244 §8.2.54).
    pub struct UrrId(u32): "URR ID";
    /// Names a QoS enforcement rule within its session (TS 29.244 §8.2.75).
    pub struct QerId(u32): "QER ID";
    /// Names a buffering action rule within its session (TS 29.244 §8.2.57).
    pub struct BarId(u8): "BAR ID";
    /// Names a traffic endpoint within its session (TS 29.244 §8.2.92).
    pub struct TrafficEndpointId(u8): "Traffic Endpoint ID";
    /// Order of evaluation among a session's PDRs: the lowest value first (TS 29.244 §8.2.11).
    pub struct Precedence(u32): "Precedence";
    /// Seconds since 1900-01-01 as in the first half of an NTP time stamp (TS 29.244 §8.2.65): a node's
    /// last start.
    pub struct RecoveryTimeStamp(u32): "Recovery Time Stamp";
    /// Same form: a point in time of a measurement (TS 29.244 §8.2.46, §8.2.47, §8.2.52, §8.2.53), or of an event (§8.2.114).
    pub struct NtpTime(u32): "Time";
    /// Seconds of use after which a report is due (TS 29.244 §8.2.14).
    pub struct TimeThreshold(u32): "Time Threshold";
    /// Seconds of use after which traffic stops (TS 29.244 §8.2.51).
    pub struct TimeQuota(u32): "Time Quota";
    /// Events after which a report is due (TS 29.244 §8.2.113).
    pub struct EventThreshold(u32): "Event Threshold";
    /// Events after which traffic stops (TS 29.244 §8.2.112).
    pub struct EventQuota(u32): "Event Quota";
    /// Seconds between periodic reports (TS 29.244 §8.2.42).
    pub struct MeasurementPeriod(u32): "Measurement Period";
    /// Seconds without traffic after which a quota is reported back (TS 29.244 §8.2.48).
    pub struct QuotaHoldingTime(u32): "Quota Holding Time";
    /// Seconds without traffic after which time stops counting (TS 29.244 §8.2.18).
    pub struct InactivityDetectionTime(u32): "Inactivity Detection Time";
    /// Seconds of use measured (TS 29.244 §8.2.45).
    pub struct DurationMeasurement(u32): "Duration Measurement";
    /// Orders the usage reports of one URR within a session (TS 29.244 §8.2.71).
    pub struct UrSeqn(u32): "UR-SEQN";
    /// User plane inactivity timer: seconds without packets before the report (TS 29.244 §8.2.83).
    pub struct UserPlaneInactivityTimer(u32): "User Plane Inactivity Timer";
    /// Ties the QERs of one policed aggregate across sessions (TS 29.244 §8.2.10).
    pub struct QerCorrelationId(u32): "QER Correlation ID";
    /// Window over which rates are averaged, milliseconds (TS 29.244 §8.2.115).
    pub struct AveragingWindow(u32): "Averaging Window";
    /// Downlink data notification delay, units of 50 ms (TS 29.244 §8.2.28).
    pub struct DownlinkDataNotificationDelay(u8): "Downlink Data Notification Delay";
    /// Packets that the CP function suggests to buffer (TS 29.244 §8.2.100).
    pub struct SuggestedBufferingPacketsCount(u8): "Suggested Buffering Packets Count";
    /// Octets of the downlink packet that caused a report (table 8.1.2-1, type 250).
    pub struct DlDataPacketsSize(u16): "DL Data Packets Size";
    /// Orders load and overload information of one node (TS 29.244 §8.2.32).
    pub struct SequenceNumber(u32): "Sequence Number";
    /// Percent, 0 to 100 (TS 29.244 §8.2.33).
    pub struct Metric(u8): "Metric";
    /// Names a filter of Ethernet frames for reflective use (TS 29.244 §8.2.98).
    pub struct EthernetFilterId(u32): "Ethernet Filter ID";
    /// Correlates reports with the query that asked for them (TS 29.244 §8.2.90).
    pub struct QueryUrrReference(u32): "Query URR Reference";
}

impl RecoveryTimeStamp {
    /// The point in time, in whole seconds.
    pub const fn at(now: Instant) -> Self {
        Self(NtpTime::at(now).0)
    }
}

/// Seconds from 1900 to 1970 (RFC 868).
const UNIX_EPOCH: u64 = 2_208_988_800;

impl NtpTime {
    /// The point in time, in whole seconds; wraps in 2036 as NTP's first era does.
    pub const fn at(now: Instant) -> Self {
        Self(((now.as_secs() + UNIX_EPOCH) & 0xffff_ffff) as u32)
    }

    /// Of the points in time that it may mean, the one from 1970 to 2106.
    pub const fn instant(self) -> Instant {
        let seconds = self.0.wrapping_sub(UNIX_EPOCH as u32) as u64;
        Instant(seconds * 1_000_000)
    }
}

code! {
    /// Whether packets pass in one direction (TS 29.244 §8.2.7).
    pub enum Gate(mask 0b11): "Gate Status" {
        /// Packets pass the gate.
        Open = 0,
        /// They are dropped.
        Closed = 1,
    }
}

/// Gate Status (TS 29.244 §8.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateStatus {
    /// Gate of the uplink.
    pub ul: Gate,
    /// Gate of the downlink.
    pub dl: Gate,
}

impl GateStatus {
    /// Both directions open.
    pub const OPEN: Self = Self { ul: Gate::Open, dl: Gate::Open };
}

impl Ie for GateStatus {
    const NAME: &'static str = "Gate Status";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let v = r.u8(Self::NAME)?;
        // Values 2 and 3 are for future use and count as closed (TS 29.244 §8.2.7).
        let gate = |v: u8| if v & 3 == 0 { Gate::Open } else { Gate::Closed };
        Ok(Self { ul: gate(v >> 2), dl: gate(v) })
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push((self.ul as u8) << 2 | self.dl as u8);
    }
}

/// Bit rates of a QER per direction, kbit/s (1 kbit = 1000 bit): MBR (TS 29.244 §8.2.8) or GBR (TS 29.244
/// §8.2.9).
///
/// Values that come from another interface in bit/s are rounded up. 40 bits each on the wire; larger ones
/// saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QerBitRate {
    /// Uplink rate in kbit/s.
    pub ul_kbps: u64,
    /// Downlink rate in kbit/s.
    pub dl_kbps: u64,
}

impl Ie for QerBitRate {
    const NAME: &'static str = "MBR/GBR";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let mut rate = || -> Result<u64, Error> {
            Ok(u64::from(r.u8(Self::NAME)?) << 32 | u64::from(r.u32(Self::NAME)?))
        };
        Ok(Self { ul_kbps: rate()?, dl_kbps: rate()? })
    }
    fn write(&self, out: &mut Vec<u8>) {
        for rate in [self.ul_kbps, self.dl_kbps] {
            out.extend_from_slice(&rate.min((1 << 40) - 1).to_be_bytes()[3..]);
        }
    }
}

impl Ie for Qfi {
    const NAME: &'static str = "QFI";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        let v = r.u8(Self::NAME)? & 0x3f;
        Qfi::new(v).ok_or(Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.value());
    }
}

flags! {
    /// Reflective QoS indication (TS 29.244 §8.2.88).
    pub struct Rqi(u8, 1): "RQI" {
        /// Reflective QoS applies.
        RQI = 5 / 1,
    }
    /// Paging policy indicator, the lowest three bits (TS 29.244 §8.2.116).
    pub struct PagingPolicyIndicator(u8, 1): "Paging Policy Indicator" {}
    /// Association release asked for by the UP function (TS 29.244 §8.2.77).
    pub struct AssociationReleaseRequest(u8, 1): "PFCP Association Release Request" {
        /// The UP function asks that the association be released.
        SARR = 5 / 1,
        /// It has non-zero usage reports left to send.
        URSS = 5 / 2,
    }
}

/// A span in the packing of GPRS timers: 5 bits of value, 3 bits of unit (TS 29.244 §8.2.78 Graceful
/// Release Period, TS 29.244 §8.2.29 DL Buffering Duration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedTimer(pub u8);

impl PackedTimer {
    /// At least so many seconds, as far as the packing goes (310 hours).
    pub const fn from_seconds(seconds: u32) -> Self {
        const UNITS: [(u8, u32); 5] = [(0, 2), (1, 60), (2, 600), (3, 3600), (4, 36_000)];
        let mut i = 0;
        while i < UNITS.len() {
            let (unit, length) = UNITS[i];
            let v = seconds.div_ceil(length);
            if v < 32 {
                return Self(unit << 5 | v as u8);
            }
            i += 1;
        }
        Self(4 << 5 | 31)
    }

    /// Seconds; `None` for "infinite".
    pub const fn seconds(self) -> Option<u32> {
        let v = (self.0 & 0x1f) as u32;
        match self.0 >> 5 {
            0 => Some(v * 2),
            2 => Some(v * 600),
            3 => Some(v * 3600),
            4 => Some(v * 36_000),
            7 => None,
            _ => Some(v * 60),
        }
    }
}

impl Ie for PackedTimer {
    const NAME: &'static str = "Timer";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.u8(Self::NAME)?))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
}

/// Table 8.1.2-1, type 257.
impl Ie for SNssai {
    const NAME: &'static str = "S-NSSAI";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(SNssai::new(r.u8(Self::NAME)?, Some(r.u24(Self::NAME)?)))
    }
    fn write(&self, out: &mut Vec<u8>) {
        let [_, a, b, c] = self.sd().unwrap_or(0xff_ffff).to_be_bytes();
        out.extend_from_slice(&[self.sst, a, b, c]);
    }
}

/// TS 29.244 §8.2.117.
impl Ie for Dnn {
    const NAME: &'static str = "APN/DNN";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        let bad = Error::new(DecodeErrorKind::InvalidValue, Self::NAME, at);
        read_name(r.take_rest(), Self::NAME, at)?.parse().map_err(|_| bad)
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_labels(self.as_str(), out);
    }
}
