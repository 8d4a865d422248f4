//! Containers of protocol IEs and of extensions, and the diagnostics of IEs that cannot be decoded.

use whimbrel_ids::DecodeErrorKind;

use crate::aper::{Aper, Codec, Fault, Reader, Writer};
use crate::ie::diagnostics::{Criticality, IeDiagnostic, TypeOfError};

/// The largest number of IEs that criticality diagnostics report: maxnoofErrors (TS 38.413 §9.3.1.3).
const ERRORS_MAX: usize = 256;

/// The specification of one IE of a message.
#[derive(Debug)]
pub(crate) struct IeSpec {
    pub(crate) id: u16,
    pub(crate) criticality: Criticality,
    pub(crate) name: &'static str,
}

/// A sequence of one container of protocol IEs.
pub(crate) trait IeSequence: Sized {
    /// The IEs in the order of the standard.
    const IES: &'static [IeSpec];
    /// Reads the sequence; missing IEs and those not comprehended are added to `diagnosis`.
    fn read_body(r: &mut Reader<'_>, diagnosis: &mut Diagnosis) -> Result<Self, Fault>;
    /// Writes the sequence.
    fn write_body(&self, w: &mut Writer<'_>);
    /// A random value, for tests.
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut crate::aper::sample::Source) -> Self;
}

/// The IEs of one message that were missing or not comprehended.
#[derive(Debug, Default)]
pub(crate) struct Diagnosis {
    /// In the order in which they were met.
    pub(crate) ies: Vec<IeDiagnostic>,
    /// The criticality of some IE requires that the message be rejected.
    pub(crate) reject: bool,
    /// An IE came twice.
    pub(crate) has_repeated_ie: bool,
    /// There is no message of this procedure and outcome.
    pub(crate) unknown_procedure: bool,
}

impl Diagnosis {
    fn note(&mut self, id: u16, criticality: Criticality, type_of_error: TypeOfError) {
        self.reject |= criticality == Criticality::Reject;
        if criticality != Criticality::Ignore && self.ies.len() < ERRORS_MAX {
            self.ies.push(IeDiagnostic { ie_criticality: criticality, ie_id: id, type_of_error });
        }
    }

    /// A mandatory IE with criticality reject is missing, or was not comprehended.
    pub(crate) fn record_missing(&mut self, spec: Option<&IeSpec>) {
        self.reject = true;
        let Some(spec) = spec else { return };
        if self.ies.len() < ERRORS_MAX && !self.ies.iter().any(|e| e.ie_id == spec.id) {
            self.ies.push(IeDiagnostic {
                ie_criticality: spec.criticality,
                ie_id: spec.id,
                type_of_error: TypeOfError::Missing,
            });
        }
    }

    /// A mandatory IE is missing that the message can do without.
    pub(crate) fn tolerate_missing(&mut self, spec: Option<&IeSpec>) {
        if let Some(spec) = spec {
            self.note(spec.id, spec.criticality, TypeOfError::Missing);
        }
    }
}

/// Walks a container of protocol IEs (TS 38.413 §9.4.7), one known IE at a time.
///
/// Deviation: IEs in another order than the standard's are accepted; TS 38.413 §10.3.6 counts them as a
/// falsely constructed message. IEs are identified by their ids, so the order is not needed, and messages of
/// gNBs that append IEs which a later release inserted would otherwise be refused. A repeated IE is ambiguous
/// and refused.
pub(crate) struct Container<'r, 'a> {
    r: &'r mut Reader<'a>,
    left: u64,
    specs: &'static [IeSpec],
    /// The received IEs of `specs`, a bit each: no message has more than 64 IEs.
    seen: u64,
    id: u16,
    criticality: Criticality,
    value: &'a [u8],
    /// The reassembled value of a fragmented open type; `value` is empty then.
    fragments: Vec<u8>,
    value_offset: usize,
}

impl<'r, 'a> Container<'r, 'a> {
    /// Reads the head of the sequence and of its container.
    pub(crate) fn open(r: &'r mut Reader<'a>, specs: &'static [IeSpec]) -> Result<Self, Fault> {
        r.bit()?; // Extension additions would follow the container; what comes after it is never read.
        let left = r.whole(0, 65_535)?;
        debug_assert!(specs.len() <= 64, "at most 64 IEs: `seen` has one bit for each");
        Ok(Self {
            r,
            left,
            specs,
            seen: 0,
            id: 0,
            criticality: Criticality::Reject,
            value: &[],
            fragments: Vec::new(),
            value_offset: 0,
        })
    }

    /// Moves to the next IE that the message defines and returns its id; unknown ones are handled by their criticality.
    pub(crate) fn next(&mut self, diagnosis: &mut Diagnosis) -> Result<Option<u16>, Fault> {
        while self.left > 0 {
            self.left -= 1;
            self.r.ie = "ProtocolIE-Field";
            let (id, criticality, value) = self.r.ie(&mut self.fragments)?;
            (self.id, self.value) = (id, value);
            self.criticality = match criticality >> 6 {
                0 => Criticality::Reject,
                1 => Criticality::Ignore,
                2 => Criticality::Notify,
                _ => return Err(self.r.fault(DecodeErrorKind::InvalidValue)),
            };
            self.value_offset = self.r.offset().saturating_sub(self.value.len() + self.fragments.len());
            // If the IEs arrive in the standard's order, the first lookup succeeds.
            let expected = (64 - self.seen.leading_zeros()) as usize;
            let place = |specs: &[IeSpec]| specs.iter().position(|s| s.id == id);
            let found = self.specs.get(expected..).and_then(place).map(|i| expected + i);
            let found = found.or_else(|| place(self.specs)).map(|i| (i, &self.specs[i]));
            match found {
                Some((i, _)) if self.seen & 1 << i != 0 => diagnosis.has_repeated_ie = true,
                Some((i, spec)) => {
                    self.r.ie = spec.name;
                    self.seen |= 1 << i;
                    return Ok(Some(self.id));
                }
                None => diagnosis.note(self.id, self.criticality, TypeOfError::NotUnderstood),
            }
        }
        Ok(None)
    }

    /// Reads the value of the IE that [`Container::next`] gave; `None` where it is not comprehended.
    pub(crate) fn value<T, C: Codec<T>>(&self, diagnosis: &mut Diagnosis) -> Result<Option<T>, Fault> {
        let octets = if self.fragments.is_empty() { self.value } else { &self.fragments };
        let mut r = Reader::new(octets, self.value_offset, self.r.ie);
        match C::read(&mut r) {
            Ok(v) => Ok(Some(v)),
            Err(Fault::NotComprehended) => {
                diagnosis.note(self.id, self.criticality, TypeOfError::NotUnderstood);
                Ok(None)
            }
            Err(Fault::RejectedExtension(id)) => {
                diagnosis.note(id, Criticality::Reject, TypeOfError::NotUnderstood);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Reads an `iE-Extensions` container: `known` reads the extension of an id, or returns that it is unknown.
pub(crate) fn read_extensions(
    r: &mut Reader<'_>,
    mut known: impl FnMut(u16, &mut Reader<'_>) -> Result<bool, Fault>,
) -> Result<(), Fault> {
    let n = r.whole(1, 65_535)?;
    for _ in 0..n {
        let id = r.whole(0, 65_535)? as u16;
        let criticality = Criticality::read(r)?;
        let taken = match r.open(|r| known(id, r)) {
            // An extension whose value is of a later release counts as unknown.
            Err(Fault::NotComprehended) => false,
            other => other?,
        };
        if !taken && criticality == Criticality::Reject {
            return Err(Fault::RejectedExtension(id));
        }
    }
    Ok(())
}

/// A CHOICE alternative of a later release, stored undecoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherChoice {
    /// The protocol IE id of the alternative.
    pub id: u16,
    /// Criticality of the unknown choice.
    pub criticality: Criticality,
    /// Its octets, undecoded.
    pub value: Vec<u8>,
}

impl OtherChoice {
    /// Reads what follows id and criticality.
    pub(crate) fn read(id: u16, criticality: u64, r: &mut Reader<'_>) -> Result<Self, Fault> {
        let criticality = match criticality {
            0 => Criticality::Reject,
            1 => Criticality::Ignore,
            2 => Criticality::Notify,
            _ => return Err(r.fault(DecodeErrorKind::InvalidValue)),
        };
        Ok(Self { id, criticality, value: r.long_octets()?.into_owned() })
    }

    /// Writes the single container.
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        w.whole(u64::from(self.id), 0, 65_535);
        self.criticality.write(w);
        w.long_octets(&self.value);
    }
}
