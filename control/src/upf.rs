//! The UPFs, as a UE's machine sees them: names, and what the CTA knows of each when an input arrives.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// UPFs that one SMF serves: what an operator's region has, and what keeps [`UpfStates`] within half a cache line.
pub const UPFS_MAX: usize = 16;

/// A UPF: its place in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UpfId(pub u8);

/// Some of the UPFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpfSet(u16);

impl UpfSet {
    /// Whether one is among them.
    pub fn contains(self, upf: UpfId) -> bool {
        self.0.checked_shr(upf.0.into()).unwrap_or(0) & 1 == 1
    }

    /// Whether none is.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<UpfId> for UpfSet {
    fn from_iter<T: IntoIterator<Item = UpfId>>(all: T) -> Self {
        Self(all.into_iter().fold(0, |set, upf| set | 1u16.checked_shl(upf.0.into()).unwrap_or(0)))
    }
}

/// What is known of every UPF, stamped into each envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpfStates {
    /// Those that new sessions may be given, a bit each.
    usable: u16,
    load: [u8; UPFS_MAX],
    reduction: [u8; UPFS_MAX],
}

/// What is known of one UPF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpfState {
    /// Its association stands, it answers, and it has not asked to be spared.
    pub usable: bool,
    /// Its load in percent, as last reported (TS 29.244 §6.2.3).
    pub load: u8,
    /// The part of new sessions, in percent, that it asks to be kept away (TS 29.244 §6.2.4).
    pub reduction: u8,
}

impl UpfStates {
    /// Every UPF can be used and none is loaded.
    pub const ALL_USABLE: Self = Self { usable: u16::MAX, load: [0; UPFS_MAX], reduction: [0; UPFS_MAX] };

    /// What is known of one; of one beyond the bound, that it cannot be used.
    pub fn get(&self, upf: UpfId) -> UpfState {
        let at = usize::from(upf.0);
        let (Some(&load), Some(&reduction)) = (self.load.get(at), self.reduction.get(at)) else {
            return UpfState::default();
        };
        UpfState { usable: self.usable >> at & 1 == 1, load, reduction }
    }

    /// Notes what is known of one.
    pub fn set(&mut self, upf: UpfId, state: UpfState) {
        let at = usize::from(upf.0);
        let (Some(load), Some(reduction)) = (self.load.get_mut(at), self.reduction.get_mut(at)) else {
            return;
        };
        (*load, *reduction) = (state.load.min(100), state.reduction.min(100));
        self.usable = self.usable & !(1 << at) | u16::from(state.usable) << at;
    }
}

/// Which can be used, then load and reduction of each up to the last of which there is something to tell: most networks
/// have few.
impl Serialize for UpfStates {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut told = [(0, 0); UPFS_MAX];
        for (told, of) in told.iter_mut().zip(self.load.iter().copied().zip(self.reduction)) {
            *told = of;
        }
        let n = told.iter().rposition(|of| *of != (0, 0)).map_or(0, |last| last + 1);
        (self.usable, &told[..n]).serialize(to)
    }
}

impl<'de> Deserialize<'de> for UpfStates {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (usable, told): (u16, Vec<(u8, u8)>) = Deserialize::deserialize(from)?;
        if told.len() > UPFS_MAX || told.iter().any(|of| of.0 > 100 || of.1 > 100) {
            return Err(serde::de::Error::custom("no UpfStates"));
        }
        let mut states = Self { usable, ..Self::default() };
        for (at, of) in told.into_iter().enumerate() {
            (states.load[at], states.reduction[at]) = of;
        }
        Ok(states)
    }
}

const _: () = assert!(UPFS_MAX <= u16::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_it_was_made_of() {
        let set: UpfSet = [UpfId(0), UpfId(15), UpfId(200)].into_iter().collect();
        assert_eq!([0, 1, 15, 16, 200].map(|n| set.contains(UpfId(n))), [true, false, true, false, false]);
        assert!(UpfSet::default().is_empty() && !set.is_empty());
    }

    #[test]
    fn what_is_known_of_one_upf_is_its_own() {
        let mut states = UpfStates::default();
        let state = UpfState { usable: true, load: 250, reduction: 7 };
        states.set(UpfId(15), state);
        assert_eq!(states.get(UpfId(15)), UpfState { load: 100, ..state });
        assert_eq!(states.get(UpfId(14)), UpfState::default());
        states.set(UpfId(16), state);
        assert_eq!(states.get(UpfId(16)), UpfState::default());
        states.set(UpfId(15), UpfState::default());
        assert_eq!(states, UpfStates::default());
    }
}
