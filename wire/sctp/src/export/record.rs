//! The records of a journal.

use whimbrel_ids::Reader;

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// The acknowledged part of a message whose end is not acknowledged.
    Begun = 1,
    /// A DATA chunk, whole and padded, was queued.
    Queued = 2,
    /// A chunk was received that cannot be delivered yet.
    Held = 3,
    /// A whole message was received and delivered, and is not released.
    Delivered = 4,
    /// Held chunks were delivered as a message, or dropped: number zero.
    Taken = 5,
}

/// One record. What a kind does not need is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportRecord<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) flags: u8,
    pub(crate) stream: u16,
    pub(crate) ssn: u16,
    /// The payload protocol identifier; of [`RecordKind::Taken`], how many chunks there are before the last.
    pub(crate) ppid: u32,
    /// The number of the message among those delivered.
    pub(crate) number: u64,
    /// The TSN of the chunk, or of the last one of the message.
    pub(crate) tsn: u64,
    pub(crate) octets: &'a [u8],
}

impl<'a> ExportRecord<'a> {
    /// A record of octets alone.
    pub(crate) fn of(kind: RecordKind, octets: &'a [u8]) -> Self {
        Self { kind, flags: 0, stream: 0, ssn: 0, ppid: 0, number: 0, tsn: 0, octets }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut fixed = [0; FIXED_OCTETS];
        fixed[0] = self.kind as u8;
        fixed[1] = self.flags;
        fixed[2..4].copy_from_slice(&self.stream.to_be_bytes());
        fixed[4..6].copy_from_slice(&self.ssn.to_be_bytes());
        fixed[6..10].copy_from_slice(&self.ppid.to_be_bytes());
        fixed[10..18].copy_from_slice(&self.number.to_be_bytes());
        fixed[18..26].copy_from_slice(&self.tsn.to_be_bytes());
        fixed[26..30].copy_from_slice(&(self.octets.len() as u32).to_be_bytes());
        out.extend_from_slice(&fixed);
        out.extend_from_slice(self.octets);
    }

    pub(crate) fn read(r: &mut Reader<'a>) -> Option<Self> {
        const IE: &str = "journal record";
        let kind = match r.u8(IE).ok()? {
            1 => RecordKind::Begun,
            2 => RecordKind::Queued,
            3 => RecordKind::Held,
            4 => RecordKind::Delivered,
            5 => RecordKind::Taken,
            _ => return None,
        };
        let (flags, stream, ssn) = (r.u8(IE).ok()?, r.u16(IE).ok()?, r.u16(IE).ok()?);
        let (ppid, number, tsn) = (r.u32(IE).ok()?, r.u64(IE).ok()?, r.u64(IE).ok()?);
        let octets = r.u32(IE).ok()? as usize;
        Some(Self { kind, flags, stream, ssn, ppid, number, tsn, octets: r.take(octets, IE).ok()? })
    }
}

/// Octets of a record before its own. Each chunk and message counts more than this beside its user data, in window and send buffer.
const FIXED_OCTETS: usize = 30;
