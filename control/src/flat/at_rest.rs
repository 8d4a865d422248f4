//! The record of a UE at rest: the form in which a shard stores a UE that has no input for a while.
//!
//! Most octets of an idle UE are those of any other UE with the same subscription, equipment and number of sessions. A record names
//! a profile, which is the first such UE, and holds the differences. They are found value by value, so that a number of another
//! length shifts nothing. A record never leaves its process: it has no version.

use std::sync::Arc;

use postcard::ser_flavors::Flavor;

use super::delta::{Edit, Edits, edit};
use super::{CRC, FlatError, FrameWriter, read};
use crate::state::{Subscription, UeContext};

/// Bound on profiles: a record names its own in one octet. An operator has some tariffs and some UE models.
const PROFILES_MAX: usize = 255;
/// The number of no profile: the record is whole.
const NO_PROFILE: u8 = u8::MAX;

/// Octets that an edit takes beside what it adds: equal values between two edits are worth one only if they are longer.
const EDIT_OCTETS: usize = 3;

/// About the octets of a UE without what UEs share, and of a record.
const UE: usize = 1024;

/// Octets of a value, with the ends of the numbers and strings in it.
struct Values {
    octets: FrameWriter,
    ends: Vec<u32>,
}

impl Values {
    fn of(ue: &UeContext) -> Self {
        let mut to = Self { octets: FrameWriter::empty(), ends: Vec::with_capacity(UE) };
        to.octets.reserve(UE);
        // As in `FrameWriter::value`: the types of a UE can be written.
        postcard::serialize_with_flavor(ue, &mut to).expect("the types of a UE can be written");
        to
    }

    fn octets(&self) -> &[u8] {
        &self.octets.0
    }
}

impl Flavor for &mut Values {
    type Output = ();

    #[inline]
    fn try_push(&mut self, octet: u8) -> postcard::Result<()> {
        (&mut self.octets).try_push(octet)?;
        self.ends.push(self.octets.0.len() as u32);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, octets: &[u8]) -> postcard::Result<()> {
        (&mut self.octets).try_extend(octets)?;
        self.ends.push(self.octets.0.len() as u32);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// What the UEs of a kind have in common.
struct RestProfile {
    subscription: Option<Arc<Subscription>>,
    radio_capability: Option<Arc<[u8]>>,
    /// The first of them, without the two above.
    first: Values,
    /// How many records name it.
    records: usize,
}

impl RestProfile {
    fn fits(&self, ue: &UeContext, values: &Values) -> bool {
        is_same(self.subscription.as_ref(), ue.amf.subscription.as_ref())
            && is_same(self.radio_capability.as_ref(), ue.amf.radio.capability.as_ref())
            && self.first.ends.len() == values.ends.len()
    }
}

/// Whether both are one copy: a shard shares equal values.
fn is_same<T: ?Sized>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// The profiles of a shard's records.
#[derive(Default)]
pub(crate) struct Profiles(Vec<RestProfile>);

/// A record, to be stored. It holds keys, and is wiped when it is freed.
pub(crate) struct AtRestRecord(FrameWriter);

impl AtRestRecord {
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0.0
    }
}

impl Profiles {
    /// The record of a UE without running procedures; it counts from now on.
    pub(crate) fn record(&mut self, ue: &mut UeContext) -> AtRestRecord {
        let (subscription, radio_capability) = (ue.amf.subscription.take(), ue.amf.radio.capability.take());
        let values = Values::of(ue);
        (ue.amf.subscription, ue.amf.radio.capability) = (subscription, radio_capability);
        let mut to = FrameWriter::empty();
        to.reserve(UE);
        match self.find_or_add(ue, &values) {
            Some(number) => {
                let profile = &mut self.0[number];
                profile.records += 1;
                to.extend(&[number as u8]);
                to.value(&differences(&profile.first, &values));
            }
            None => {
                to.extend(&[NO_PROFILE]);
                to.value(&*ue);
            }
        }
        let crc = crc32c::crc32c(&to.0);
        to.extend(&crc.to_be_bytes());
        AtRestRecord(to)
    }

    fn find_or_add(&mut self, ue: &UeContext, values: &Values) -> Option<usize> {
        if let Some(number) = self.0.iter().position(|profile| profile.fits(ue, values)) {
            return Some(number);
        }
        let mut first = Values { octets: FrameWriter(Vec::new()), ends: values.ends.clone() };
        first.octets.extend(values.octets());
        let profile = RestProfile {
            subscription: ue.amf.subscription.clone(),
            radio_capability: ue.amf.radio.capability.clone(),
            first,
            records: 0,
        };
        if self.0.len() < PROFILES_MAX {
            self.0.push(profile);
            return Some(self.0.len() - 1);
        }
        let unused = self.0.iter().position(|profile| profile.records == 0)?;
        self.0[unused] = profile;
        Some(unused)
    }

    /// The UE of a record.
    ///
    /// Errors: [`FlatError::Damaged`], and [`FlatError::Malformed`] for what is no record of these profiles.
    pub(crate) fn read(&self, record: &[u8]) -> Result<Box<UeContext>, FlatError> {
        let (written, crc) = record.split_last_chunk::<CRC>().ok_or(FlatError::Malformed)?;
        if crc32c::crc32c(written).to_be_bytes() != *crc {
            return Err(FlatError::Damaged);
        }
        let (number, octets) = written.split_first().ok_or(FlatError::Malformed)?;
        if *number == NO_PROFILE {
            return read(octets).map(Box::new);
        }
        let profile = self.0.get(usize::from(*number)).ok_or(FlatError::Malformed)?;
        let mut whole = FrameWriter::empty();
        whole.reserve(profile.first.octets().len() + octets.len());
        edit(profile.first.octets(), Edits::of(octets)?, &mut whole)?;
        let mut ue: Box<UeContext> = read(&whole.0).map(Box::new)?;
        ue.amf.subscription.clone_from(&profile.subscription);
        ue.amf.radio.capability.clone_from(&profile.radio_capability);
        Ok(ue)
    }

    /// A record is about to be freed or overwritten.
    pub(crate) fn forget(&mut self, record: &[u8]) {
        let profile = record.first().and_then(|number| self.0.get_mut(usize::from(*number)));
        if let Some(profile) = profile {
            profile.records = profile.records.saturating_sub(1);
        }
    }

    /// How many there are, and their octets.
    pub(crate) fn size(&self) -> (usize, usize) {
        let octets = |p: &RestProfile| p.first.octets().len() + p.first.ends.len() * size_of::<u32>();
        (self.0.len(), self.0.iter().map(octets).sum())
    }
}

/// The edits that turn the octets of `old` into those of `new`, value by value.
fn differences<'a>(old: &Values, new: &'a Values) -> Vec<Edit<'a>> {
    let mut edits: Vec<Edit<'a>> = Vec::new();
    // Where the last edit ends, where the present one begins, and where it ended when values were last different.
    let (mut done, mut begin, mut end) = ((0, 0), None, (0, 0));
    let mut at = (0, 0);
    let mut close = |begin: (usize, usize), end: (usize, usize), done: &mut (usize, usize)| {
        let kept = (begin.0 - done.0) as u32;
        edits.push(Edit { kept, dropped: (end.0 - begin.0) as u32, added: &new.octets()[begin.1..end.1] });
        *done = end;
    };
    for (old_end, new_end) in old.ends.iter().zip(&new.ends) {
        let to = (*old_end as usize, *new_end as usize);
        if old.octets()[at.0..to.0] != new.octets()[at.1..to.1] {
            begin.get_or_insert(at);
            end = to;
        } else if let Some(from) = begin
            && to.0 - end.0 > EDIT_OCTETS
        {
            close(from, end, &mut done);
            begin = None;
        }
        at = to;
    }
    let all = (old.octets().len(), new.octets().len());
    if at != all {
        begin.get_or_insert(at);
        end = all;
    }
    if let Some(from) = begin {
        close(from, end, &mut done);
    }
    edits
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use whimbrel_ids::{Instant, Supi, Tmsi};

    use super::*;
    use crate::envelope::UeId;
    use crate::flat::Checkpoint;
    use crate::ue_harness::UeHarness;

    fn ue(slot: u32) -> UeContext {
        let mut ue = UeHarness::registered().context().unwrap().clone();
        ue.id = UeId { slot, generation: 1 + (slot % 300) as u16 };
        ue.clock = u64::from(slot) * 77;
        let digits = format!("99970{slot:010}");
        ue.amf.supi = Supi::from_digits(digits.bytes().map(|b| b - b'0'));
        ue.amf.tmsi = Some(Tmsi(slot.wrapping_mul(0x9e37_79b9)));
        ue.amf.implicit_deregistration_at = Some(Instant(1 << (slot % 50)));
        ue.amf.radio.capability = Some(vec![7; 900].into());
        ue
    }

    fn same(a: &UeContext, b: &UeContext) {
        assert_eq!(Checkpoint::of(a), Checkpoint::of(b));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }

    #[test]
    fn a_ue_is_read_from_its_record_as_it_was() {
        let mut profiles = Profiles::default();
        let (subscription, capability) = (ue(0).amf.subscription, ue(0).amf.radio.capability);
        let mut records = Vec::new();
        for slot in 0..40 {
            let mut ue = ue(slot);
            (ue.amf.subscription, ue.amf.radio.capability) = (subscription.clone(), capability.clone());
            if slot % 3 == 0 {
                ue.amf.connection = None;
            }
            if slot % 5 == 0 {
                ue.sessions.clear();
            }
            let before = ue.clone();
            let record = profiles.record(&mut ue);
            same(&ue, &before);
            records.push((before, record));
        }
        assert_eq!(profiles.0.len(), 4, "with and without connection, with and without session");
        for (before, record) in &records {
            let read = profiles.read(record.octets()).unwrap();
            same(&read, before);
            assert!(is_same(read.amf.subscription.as_ref(), subscription.as_ref()));
            assert!(is_same(read.amf.radio.capability.as_ref(), capability.as_ref()));
        }
        let longest = records.iter().map(|(_, record)| record.octets().len()).max().unwrap();
        assert!(longest < 120, "these UEs differ in few values: {longest} octets");
    }

    #[test]
    fn a_ue_beyond_the_last_profile_has_a_whole_record() {
        let mut profiles = Profiles::default();
        for n in 0..PROFILES_MAX {
            let mut ue = ue(n as u32);
            let record = profiles.record(&mut ue);
            assert_eq!(usize::from(record.octets()[0]), n, "no UE shares its subscription with another");
        }
        let mut one_more = ue(1000);
        let record = profiles.record(&mut one_more);
        assert_eq!(record.octets()[0], NO_PROFILE);
        same(&profiles.read(record.octets()).unwrap(), &one_more);
        // A profile without records makes room.
        profiles.forget(&[7]);
        let record = profiles.record(&mut one_more);
        assert_eq!(record.octets()[0], 7);
        same(&profiles.read(record.octets()).unwrap(), &one_more);
    }

    #[test]
    fn a_damaged_record_is_refused() {
        let mut profiles = Profiles::default();
        profiles.record(&mut ue(1));
        let record = profiles.record(&mut ue(2));
        for at in 0..record.octets().len() {
            let mut damaged = record.octets().to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(profiles.read(&damaged).err(), Some(FlatError::Damaged), "octet {at}");
        }
        assert_eq!(profiles.read(&[]).err(), Some(FlatError::Malformed));
        assert!(Profiles::default().read(record.octets()).is_err(), "its profile is not there");
    }

    #[test]
    fn a_subscription_that_no_record_has_any_more_is_freed_when_its_profile_is_reused() {
        let mut profiles = Profiles::default();
        let mut first = ue(0);
        let subscription = Arc::downgrade(first.amf.subscription.as_ref().unwrap());
        let record = profiles.record(&mut first);
        drop(first);
        profiles.forget(record.octets());
        for n in 1..=PROFILES_MAX {
            profiles.record(&mut ue(n as u32));
        }
        assert!(subscription.upgrade().is_none());
    }
}
