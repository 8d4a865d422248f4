//! What is measured, when it is reported, and the figures.

use whimbrel_ids::Reader;

use crate::codec::{Ie, flags};
use crate::error::Error;

flags! {
    /// What a URR measures (TS 29.244 §8.2.40).
    pub struct MeasurementMethod(u8, 1): "Measurement Method" {
        /// Time of use.
        DURAT = 5 / 1,
        /// Octets are measured.
        VOLUM = 5 / 2,
        /// Events are measured.
        EVENT = 5 / 3,
    }
    /// When a URR reports (TS 29.244 §8.2.19).
    pub struct ReportingTriggers(u32, 3): "Reporting Triggers" {
        PERIO = 5 / 1,
        VOLTH = 5 / 2,
        TIMTH = 5 / 3,
        QUHTI = 5 / 4,
        START = 5 / 5,
        STOPT = 5 / 6,
        DROTH = 5 / 7,
        LIUSA = 5 / 8,
        VOLQU = 6 / 1,
        TIMQU = 6 / 2,
        ENVCL = 6 / 3,
        MACAR = 6 / 4,
        EVETH = 6 / 5,
        EVEQU = 6 / 6,
        IPMJL = 6 / 7,
        QUVTI = 6 / 8,
        REEMR = 7 / 1,
        UPINT = 7 / 2,
    }
    /// Why a usage report was made (TS 29.244 §8.2.41).
    pub struct UsageReportTrigger(u32, 3): "Usage Report Trigger" {
        PERIO = 5 / 1,
        VOLTH = 5 / 2,
        TIMTH = 5 / 3,
        QUHTI = 5 / 4,
        START = 5 / 5,
        STOPT = 5 / 6,
        DROTH = 5 / 7,
        IMMER = 5 / 8,
        VOLQU = 6 / 1,
        TIMQU = 6 / 2,
        LIUSA = 6 / 3,
        TERMR = 6 / 4,
        MONIT = 6 / 5,
        ENVCL = 6 / 6,
        MACAR = 6 / 7,
        EVETH = 6 / 8,
        EVEQU = 7 / 1,
        TEBUR = 7 / 2,
        IPMJL = 7 / 3,
        QUVTI = 7 / 4,
        EMRRE = 7 / 5,
        UPINT = 7 / 6,
    }
    /// Refinements of a measurement (TS 29.244 §8.2.68).
    pub struct MeasurementInformation(u8, 1): "Measurement Information" {
        MBQE = 5 / 1,
        INAM = 5 / 2,
        RADI = 5 / 3,
        ISTM = 5 / 4,
        MNOP = 5 / 5,
        SSPOC = 5 / 6,
        ASPOC = 5 / 7,
        CIAM = 5 / 8,
    }
    /// To which part of a measurement a report belongs (TS 29.244 §8.2.59).
    pub struct UsageInformation(u8, 1): "Usage Information" {
        BEF = 5 / 1,
        AFT = 5 / 2,
        UAE = 5 / 3,
        UBE = 5 / 4,
    }
}

fn read_each<const N: usize>(r: &mut Reader<'_>, ie: &'static str) -> Result<[Option<u64>; N], Error> {
    let flags = r.u8(ie)?;
    let mut values = [None; N];
    for (i, v) in values.iter_mut().enumerate() {
        if flags & 1 << i != 0 {
            *v = Some(r.u64(ie)?);
        }
    }
    Ok(values)
}

fn write_each(values: &[Option<u64>], out: &mut Vec<u8>) {
    out.push(values.iter().enumerate().fold(0, |flags, (i, v)| flags | u8::from(v.is_some()) << i));
    for v in values.iter().flatten() {
        out.extend_from_slice(&v.to_be_bytes());
    }
}

/// Octets of a threshold (TS 29.244 §8.2.13) or quota (TS 29.244 §8.2.50). What is `None` does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Both directions together.
    pub total: Option<u64>,
    /// Octets of the uplink.
    pub ul: Option<u64>,
    /// Octets of the downlink.
    pub dl: Option<u64>,
}

impl Ie for Volume {
    const NAME: &'static str = "Volume Threshold/Quota";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let [total, ul, dl] = read_each(r, Self::NAME)?;
        Ok(Self { total, ul, dl })
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_each(&[self.total, self.ul, self.dl], out);
    }
}

/// What was measured (TS 29.244 §8.2.44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeMeasurement {
    /// Octets, both directions.
    pub total: Option<u64>,
    /// Octets of the uplink.
    pub ul: Option<u64>,
    /// Octets of the downlink.
    pub dl: Option<u64>,
    /// Packets, both directions.
    pub total_packets: Option<u64>,
    /// Packets of the uplink.
    pub ul_packets: Option<u64>,
    /// Packets of the downlink.
    pub dl_packets: Option<u64>,
}

impl Ie for VolumeMeasurement {
    const NAME: &'static str = "Volume Measurement";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let [total, ul, dl, total_packets, ul_packets, dl_packets] = read_each(r, Self::NAME)?;
        Ok(Self { total, ul, dl, total_packets, ul_packets, dl_packets })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let v = [self.total, self.ul, self.dl, self.total_packets, self.ul_packets, self.dl_packets];
        write_each(&v, out);
    }
}
