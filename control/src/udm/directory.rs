//! The directory: the state of each subscriber, its registration and its sequence number.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, PlmnId, SNssai, Supi};
use whimbrel_nas::ie::{SchemeOutput, Suci};
use whimbrel_security::aka;
use whimbrel_security::{
    AuthenticationVector, EapAkaPrimeVector, EapIdentity, HomeNetworkKeys, ProtectionScheme, Rand,
    ServingNetworkName, Sqn, SqnOffset, SqnSlot, SqnState, SuciError,
};

use super::{AuthMethod, AuthenticationSubscription, Subscribers};
use crate::compact::CompactMap;
use crate::envelope::UeId;
use crate::services::nudm::{AuthData, Identity, Resynchronisation, UdmAnswer, UdmError, UdmRequest, Vector};

/// The entry of one subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DirectoryEntry {
    registered: Option<UeId>,
    sqn: Option<SqnState>,
}

/// An IMSI in eight octets, in the order of SUPIs: how many digits, then their number.
type Imsi = [u16; 4];

/// An entry in 18 octets: slot and flags, generation, SQN offset, last SQN.
type PackedEntry = [u16; 9];

/// Flags of a packed entry above the 24 bits of the slot.
const REGISTERED: u32 = 1 << 24;
const HAS_SQN: u32 = 1 << 25;

fn imsi(supi: Supi) -> Option<Imsi> {
    let (len, value) = supi.digits().fold((0, 0), |(len, value), d| (len + 1, 10 * value + u64::from(d)));
    (len > 0).then(|| split(len << 56 | value))
}

fn split(number: u64) -> [u16; 4] {
    [48, 32, 16, 0].map(|shift| (number >> shift) as u16)
}

fn joined(parts: &[u16]) -> u64 {
    parts.iter().fold(0, |number, part| number << 16 | u64::from(*part))
}

impl DirectoryEntry {
    fn pack(self) -> PackedEntry {
        let ue = self.registered.unwrap_or(UeId { slot: 0, generation: 0 });
        let sqn = self.sqn.unwrap_or(SqnState::new(SqnOffset::ZERO));
        let flags =
            u32::from(self.registered.is_some()) * REGISTERED + u32::from(self.sqn.is_some()) * HAS_SQN;
        let head = split(u64::from(ue.slot | flags));
        let (offset, last) = (split(sqn.offset.value()), split(sqn.last.value()));
        [head[2], head[3], ue.generation, offset[1], offset[2], offset[3], last[1], last[2], last[3]]
    }

    fn unpack(packed: PackedEntry) -> Self {
        let head = joined(&packed[..2]) as u32;
        let ue = UeId { slot: head & (UeId::SLOTS - 1), generation: packed[2] };
        let (offset, last) = (joined(&packed[3..6]), joined(&packed[6..]));
        let sqn = SqnState { offset: SqnOffset::new(offset), last: Sqn::from_value(last) };
        Self { registered: (head & REGISTERED != 0).then_some(ue), sqn: (head & HAS_SQN != 0).then_some(sqn) }
    }
}

/// The entries of all subscribers that have one. Nearly all have an IMSI.
#[derive(Default)]
struct Entries {
    by_imsi: CompactMap<Imsi, PackedEntry>,
    others: BTreeMap<Supi, DirectoryEntry>,
}

impl Entries {
    fn get(&self, supi: Supi) -> Option<DirectoryEntry> {
        match imsi(supi) {
            Some(imsi) => self.by_imsi.get(imsi).map(DirectoryEntry::unpack),
            None => self.others.get(&supi).copied(),
        }
    }

    /// Sets the entry of a subscriber; one without content is removed.
    fn set(&mut self, supi: Supi, entry: DirectoryEntry) {
        match (imsi(supi), entry == DirectoryEntry::default()) {
            (Some(imsi), false) => {
                self.by_imsi.insert(imsi, entry.pack());
            }
            (Some(imsi), true) => {
                self.by_imsi.remove(imsi);
            }
            (None, false) => {
                self.others.insert(supi, entry);
            }
            (None, true) => {
                self.others.remove(&supi);
            }
        }
    }

    /// The UEs of all that are registered, with their subscribers, in the order of SUPIs.
    fn registered(&self) -> impl Iterator<Item = (Supi, UeId)> + '_ {
        let by_imsi = self.by_imsi.iter().filter_map(|(imsi, packed)| {
            let ue = DirectoryEntry::unpack(packed).registered?;
            let (len, value) = (u32::from(imsi[0] >> 8), joined(&imsi) & ((1 << 56) - 1));
            let digits = (0..len).rev().map(|i| (value / 10u64.pow(i) % 10) as u8);
            Some((Supi::from_digits(digits)?, ue))
        });
        by_imsi.chain(self.others.iter().filter_map(|(supi, e)| Some((*supi, e.registered?))))
    }
}

/// Answers UEs' requests in the order in which the CTA delivers them.
pub struct Directory {
    home: PlmnId,
    keys: HomeNetworkKeys,
    serving_network: ServingNetworkName,
    entries: Entries,
    /// How many of them are registered.
    registered: usize,
    /// The UEs counted in each slice that has a limit.
    slices: BTreeMap<SNssai, BTreeSet<UeId>>,
    /// This home's share of the limit of each slice, where several homes share it; `None`: the limits are of this home alone.
    slice_shares: Option<BTreeMap<SNssai, u32>>,
    /// The IND of this one of several directories of the same subscribers.
    sqn_slot: Option<SqnSlot>,
    /// Subscribers whose registration has changed since they were taken last; `None`: they are not kept.
    changed: Option<BTreeMap<Supi, RegistrationChange>>,
}

/// A change of a subscriber's registration, for the directory that several homes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationChange {
    /// The subscriber has registered, again or for the first time.
    Registered,
    /// The subscriber is not registered any more.
    Deregistered,
}

/// A snapshot for another directory of the same subscribers, without keys and sequence numbers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Registrations {
    registered: BTreeMap<Supi, UeId>,
    slices: BTreeMap<SNssai, BTreeSet<UeId>>,
}

/// The result of a request.
#[derive(Debug)]
pub struct DirectoryOutcome {
    /// The answer for the UE.
    pub answer: UdmAnswer,
    /// The subscriber's former slot, whose context is to be deleted.
    pub superseded: Option<UeId>,
}

impl From<UdmAnswer> for DirectoryOutcome {
    fn from(answer: UdmAnswer) -> Self {
        Self { answer, superseded: None }
    }
}

impl Directory {
    /// The directory of a home network, with the private keys of its SUCIs.
    pub fn new(home: PlmnId, keys: HomeNetworkKeys) -> Self {
        Self {
            home,
            keys,
            serving_network: ServingNetworkName::new(home),
            entries: Entries::default(),
            registered: 0,
            slices: BTreeMap::new(),
            slice_shares: None,
            sqn_slot: None,
            changed: None,
        }
    }

    /// One of several directories of the same subscribers, each with a slot of the USIM's array (TS 33.102 Annex C.2.2). Without one, IND rotates.
    #[must_use]
    pub fn with_sqn_slot(self, sqn_slot: Option<SqnSlot>) -> Self {
        Self { sqn_slot, ..self }
    }

    /// Changes the slot. Sequence numbers go on by the clock, so no USIM notices.
    pub fn set_sqn_slot(&mut self, sqn_slot: Option<SqnSlot>) {
        self.sqn_slot = sqn_slot;
    }

    /// Of the limit of each slice, the share that this home may admit; none of a slice that is not named.
    pub fn set_slice_shares(&mut self, shares: BTreeMap<SNssai, u32>) {
        self.slice_shares = Some(shares);
    }

    /// The number of UEs in each slice that has a limit.
    pub fn slice_counts(&self) -> impl Iterator<Item = (SNssai, u32)> + '_ {
        self.slices.iter().map(|(slice, ues)| (*slice, ues.len() as u32))
    }

    /// The registered subscribers, and their slices.
    pub fn registrations(&self) -> Registrations {
        Registrations { registered: self.entries.registered().collect(), slices: self.slices.clone() }
    }

    /// Takes over the snapshot of another directory.
    pub fn follow_from(&mut self, Registrations { registered, slices }: Registrations) {
        self.entries = Entries::default();
        self.registered = registered.len();
        for (supi, ue) in registered {
            self.entries.set(supi, DirectoryEntry { registered: Some(ue), sqn: None });
        }
        self.slices = slices;
    }

    /// A UE that was registered before the core was restarted is registered again, and counts in these slices.
    pub fn restore(&mut self, ue: UeId, supi: Supi, slices: &[(SNssai, u32)]) {
        self.register(ue, supi);
        for (slice, _) in slices {
            self.slices.entry(*slice).or_default().insert(ue);
        }
    }

    /// Has changes of subscribers' registrations kept for [`Self::take_changed`].
    pub fn keep_changed(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Takes the subscribers whose registration has changed, each with its last change. A broker's user is none of them.
    pub fn take_changed(&mut self) -> BTreeMap<Supi, RegistrationChange> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note_change(&mut self, supi: Supi, change: RegistrationChange) {
        if let Some(changed) = self.changed.as_mut().filter(|_| !supi.is_nai()) {
            changed.insert(supi, change);
        }
    }

    /// All registered subscribers.
    pub fn registered_subscribers(&self) -> impl Iterator<Item = Supi> + '_ {
        self.entries.registered().map(|(supi, _)| supi)
    }

    /// All registered UEs.
    pub fn all_registered(&self) -> impl Iterator<Item = UeId> + '_ {
        self.entries.registered().map(|(_, ue)| ue)
    }

    /// How many subscribers are registered.
    pub fn registrations_count(&self) -> usize {
        self.registered
    }

    /// The UE under which a subscriber is registered.
    pub fn registered(&self, supi: Supi) -> Option<UeId> {
        self.entries.get(supi)?.registered
    }

    /// Answers one request of one UE.
    pub fn handle(
        &mut self,
        now: Instant,
        ue: UeId,
        request: UdmRequest,
        subscribers: &mut impl Subscribers,
    ) -> DirectoryOutcome {
        match request {
            UdmRequest::GenerateAuthData { identity, rand, resynchronisation } => {
                let (supi, data) = self.auth_data(now, &identity, Rand(rand), resynchronisation, subscribers);
                UdmAnswer::AuthData(data.map_err(|e| (e, supi))).into()
            }
            UdmRequest::Subscription(supi) => UdmAnswer::Registered(subscribers.subscription(supi)).into(),
            UdmRequest::Register(supi) => {
                let answer = UdmAnswer::Registered(subscribers.subscription(supi));
                self.follow(ue, &request, answer)
            }
            UdmRequest::EnterSlices(mut slices) => {
                if let Some(shares) = &self.slice_shares {
                    let share = |slice| shares.get(slice).copied().unwrap_or(0);
                    slices.iter_mut().for_each(|(slice, most)| *most = share(slice).min(*most));
                }
                UdmAnswer::Full(self.enter_slices(ue, &slices)).into()
            }
            UdmRequest::Deregister(_) => self.follow(ue, &request, UdmAnswer::Deregistered),
            UdmRequest::RegisterGuest { .. } => self.follow(ue, &request, UdmAnswer::GuestRegistered),
            // The directory has no use for these; UEs send them to a remote UDM only.
            UdmRequest::ConfirmAuthentication { .. }
            | UdmRequest::RegisterSession { .. }
            | UdmRequest::DeregisterSession(..) => UdmAnswer::Noted.into(),
        }
    }

    /// A UDM has deregistered the subscriber from this AMF (TS 29.503 §5.3.2.3): its UE, whose later deregistration has no effect.
    pub fn deregistered_by_udm(&mut self, supi: Supi) -> Option<UeId> {
        let ue = self.registered(supi)?;
        self.leave_slices(ue);
        self.give_up(ue, supi);
        Some(ue)
    }

    /// Applies a request and its answer from another directory of the same subscribers, of which this one is a replica. The
    /// store is not read, and sequence numbers are not replicated: they continue from the clock and the store.
    pub fn follow(&mut self, ue: UeId, request: &UdmRequest, answer: UdmAnswer) -> DirectoryOutcome {
        let mut superseded = None;
        match (request, &answer) {
            (UdmRequest::Register(supi), UdmAnswer::Registered(Ok(_))) => {
                superseded = self.register(ue, *supi);
                self.note_change(*supi, RegistrationChange::Registered);
            }
            (UdmRequest::RegisterGuest { supi, former }, _) => {
                if let Some(former) = former {
                    self.give_up(ue, *former);
                }
                superseded = self.register(ue, *supi);
            }
            // As that directory has decided: the share of a limit is its own.
            (UdmRequest::EnterSlices(slices), UdmAnswer::Full(full)) => {
                let entered = slices.iter().filter(|(slice, _)| !full.contains(slice));
                let entered: Vec<_> = entered.map(|(slice, _)| (*slice, u32::MAX)).collect();
                self.enter_slices(ue, &entered);
            }
            (UdmRequest::Deregister(supi), _) => {
                self.leave_slices(ue);
                self.give_up(ue, *supi);
            }
            _ => {}
        }
        DirectoryOutcome { answer, superseded }
    }

    fn auth_data(
        &mut self,
        now: Instant,
        identity: &Identity,
        rand: Rand,
        resynchronisation: Option<Resynchronisation>,
        subscribers: &mut impl Subscribers,
    ) -> (Option<Supi>, Result<AuthData, UdmError>) {
        let supi = match identity {
            Identity::Supi(supi) => Ok(*supi),
            Identity::Suci(suci) => self.reveal(suci),
        };
        match supi {
            Ok(supi) => (Some(supi), self.vector(now, supi, rand, resynchronisation, subscribers)),
            // Of another network, and not concealed: looked up by SUPI.
            Err(e) => (in_clear(identity), Err(e)),
        }
    }

    /// The SIDF (TS 33.501 §6.12.5).
    fn reveal(&self, suci: &Suci) -> Result<Supi, UdmError> {
        let Suci::Imsi { plmn, output, .. } = suci else { return Err(UdmError::BadSchemeOutput) };
        if *plmn != self.home {
            return Err(UdmError::OtherHomeNetwork(*plmn));
        }
        match output {
            SchemeOutput::Null(msin) => {
                let digits = plmn.digits().chain(msin.digits().iter().copied());
                Supi::from_digits(digits).ok_or(UdmError::BadSchemeOutput)
            }
            SchemeOutput::Concealed { scheme, key_id, output } => {
                let scheme =
                    ProtectionScheme::from_identifier(scheme.value()).ok_or(UdmError::BadSchemeOutput)?;
                self.keys.deconceal(*plmn, scheme, *key_id, output).map_err(|e| match e {
                    SuciError::UnknownKey { key_id, .. } => UdmError::UnknownHomeNetworkKey(key_id),
                    _ => UdmError::BadSchemeOutput,
                })
            }
        }
    }

    fn vector(
        &mut self,
        now: Instant,
        supi: Supi,
        rand: Rand,
        resynchronisation: Option<Resynchronisation>,
        subscribers: &mut impl Subscribers,
    ) -> Result<AuthData, UdmError> {
        let credentials = subscribers.authentication(supi)?;
        let mut entry = self.entries.get(supi).unwrap_or_default();
        let sqn = entry.sqn.get_or_insert_with(|| SqnState::new(credentials.sqn_offset));
        if self.sqn_slot.is_some() {
            // Another home may have had a resynchronisation since.
            sqn.offset = sqn.offset.with_larger_seq(credentials.sqn_offset, now);
        }
        if let Some(Resynchronisation { rand, auts }) = resynchronisation {
            let moved = aka::resynchronise(&credentials.functions, &rand, &auts, sqn, now)
                .ok_or(UdmError::BadAuts)?;
            if let Some(offset) = moved {
                subscribers.save_sqn_offset(supi, offset)?;
            }
        }
        let AuthenticationSubscription { functions, method, amf, .. } = &credentials;
        let sqn = match self.sqn_slot {
            Some(slot) => sqn.next_in(now, slot),
            None => sqn.next(now),
        };
        let name = &self.serving_network;
        self.entries.set(supi, entry);
        let vector = match method {
            AuthMethod::FiveGAka => {
                Vector::FiveGAka(AuthenticationVector::generate(functions, rand, sqn, *amf, name).into())
            }
            AuthMethod::EapAkaPrime => {
                let vector = EapAkaPrimeVector::generate(functions, rand, sqn, *amf, name);
                Vector::EapAkaPrime(vector.into(), EapIdentity::new(supi, self.home))
            }
        };
        Ok(AuthData { supi, vector })
    }

    /// Network slice admission control: TS 23.501 §5.15.11.1.
    fn enter_slices(&mut self, ue: UeId, slices: &[(SNssai, u32)]) -> Vec<SNssai> {
        self.slices.retain(|s, ues| {
            if !slices.iter().any(|(named, _)| named == s) {
                ues.remove(&ue);
            }
            !ues.is_empty()
        });
        let mut full = Vec::new();
        for &(s, most) in slices {
            let ues = self.slices.entry(s).or_default();
            if !ues.contains(&ue) && ues.len() >= most as usize {
                full.push(s);
            } else {
                ues.insert(ue);
            }
        }
        full
    }

    fn leave_slices(&mut self, ue: UeId) {
        if !self.slices.is_empty() {
            self.enter_slices(ue, &[]);
        }
    }

    /// The UE is no longer registered under this SUPI.
    fn give_up(&mut self, ue: UeId, supi: Supi) {
        if let Some(entry) = self.entries.get(supi).filter(|entry| entry.registered == Some(ue)) {
            self.registered -= 1;
            // Of a broker's user, nothing is left.
            self.entries.set(supi, DirectoryEntry { registered: None, ..entry });
            self.note_change(supi, RegistrationChange::Deregistered);
        }
    }

    /// Returns the subscriber's former slot.
    fn register(&mut self, ue: UeId, supi: Supi) -> Option<UeId> {
        let mut entry = self.entries.get(supi).unwrap_or_default();
        let former = entry.registered.replace(ue);
        self.entries.set(supi, entry);
        self.registered += usize::from(former.is_none());
        let superseded = former.filter(|&former| former != ue);
        if let Some(former) = superseded {
            self.leave_slices(former);
        }
        superseded
    }
}

/// The SUPI of a SUCI with the null scheme.
fn in_clear(identity: &Identity) -> Option<Supi> {
    match identity {
        Identity::Supi(supi) => Some(*supi),
        Identity::Suci(suci) => suci.plain_supi(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use whimbrel_security::{AuthenticationManagementField, K, Milenage, Opc};

    use super::super::Subscription;
    use super::*;

    /// One subscriber, with this offset.
    struct OneSubscriber(SqnOffset);

    impl Subscribers for OneSubscriber {
        fn authentication(&mut self, _: Supi) -> Result<AuthenticationSubscription, UdmError> {
            Ok(AuthenticationSubscription {
                functions: Milenage::new(&K::new([1; 16]), Opc::new([2; 16])).into(),
                method: AuthMethod::FiveGAka,
                amf: AuthenticationManagementField::FIVE_G,
                sqn_offset: self.0,
            })
        }

        fn subscription(&mut self, _: Supi) -> Result<Arc<Subscription>, UdmError> {
            Err(UdmError::UserNotFound)
        }

        fn save_sqn_offset(&mut self, _: Supi, _: SqnOffset) -> Result<(), UdmError> {
            Ok(())
        }
    }

    #[test] // TS 33.102 Annex C.2.2: IND of the slot, and the offset that another home has merged
    fn a_directory_with_a_slot_issues_its_ind_and_takes_a_later_offset() {
        let now = Instant(1_800_000_000_000_000);
        let supi: Supi = "imsi-999700000000001".parse().unwrap();
        let issued = |slot: Option<u8>| {
            let slot = slot.and_then(SqnSlot::new);
            let mut directory = Directory::new(PlmnId::TEST, HomeNetworkKeys::new()).with_sqn_slot(slot);
            [10, 500, 20].map(|seq| {
                let mut subscribers = OneSubscriber(SqnOffset::with_seq_at(now, seq));
                directory.vector(now, supi, Rand([3; 16]), None, &mut subscribers).unwrap();
                let sqn = directory.entries.get(supi).unwrap().sqn.unwrap();
                (sqn.last.seq(), sqn.last.ind())
            })
        };
        assert_eq!(issued(Some(9)), [(10, 9), (500, 9), (501, 9)]);
        assert_eq!(issued(None), [(10, 1), (11, 2), (12, 3)], "one directory knows its own offset");
    }

    #[test] // TS 23.501 §5.15.11.1, with a limit of several homes
    fn a_home_admits_within_its_share_and_its_replica_follows_what_it_has_decided() {
        let slice = SNssai::sst(1);
        let new = || Directory::new(PlmnId::TEST, HomeNetworkKeys::new());
        let (mut directory, mut replica) = (new(), new());
        let mut enter = |directory: &mut Directory, slot, shares: &[(SNssai, u32)]| {
            directory.set_slice_shares(shares.iter().copied().collect());
            let (ue, request) = (UeId { slot, generation: 1 }, UdmRequest::EnterSlices(vec![(slice, 3)]));
            let subscribers = &mut OneSubscriber(SqnOffset::ZERO);
            let answer = directory.handle(Instant(1), ue, request.clone(), subscribers).answer;
            let followed = replica.follow(ue, &request, answer.clone());
            assert!(
                replica
                    .slice_counts()
                    .filter(|(_, ues)| *ues > 0)
                    .eq(directory.slice_counts().filter(|(_, ues)| *ues > 0))
            );
            drop(followed);
            matches!(answer, UdmAnswer::Full(full) if full.is_empty())
        };
        assert!(!enter(&mut directory, 1, &[]), "no share yet");
        assert!(enter(&mut directory, 1, &[(slice, 1)]));
        assert!(!enter(&mut directory, 2, &[(slice, 1)]));
        assert!(enter(&mut directory, 2, &[(slice, 9)]));
        assert!(enter(&mut directory, 2, &[(slice, 0)]), "it is there already");
        assert!(enter(&mut directory, 3, &[(slice, 9)]));
        assert!(!enter(&mut directory, 4, &[(slice, 9)]), "the limit of the network");
        directory.set_slice_shares(BTreeMap::new());
        assert_eq!(directory.slice_counts().collect::<Vec<_>>(), [(slice, 3)]);
    }

    #[test]
    fn an_entry_is_packed_without_loss() {
        let sqn = SqnState { offset: SqnOffset::new(u64::MAX), last: Sqn::from_value(0x1234_5678_9abc) };
        let ue = UeId { slot: UeId::SLOTS - 1, generation: u16::MAX };
        for registered in [None, Some(ue), Some(UeId { slot: 0, generation: 0 })] {
            for sqn in [None, Some(sqn), Some(SqnState::new(SqnOffset::ZERO))] {
                let entry = DirectoryEntry { registered, sqn };
                assert_eq!(DirectoryEntry::unpack(entry.pack()), entry);
            }
        }
        assert_eq!(size_of::<(Imsi, PackedEntry)>(), 26);
    }

    #[test]
    fn subscribers_are_listed_in_the_order_of_their_supis_with_and_without_an_imsi() {
        let nai = "nai-0123456789abcdef0123456789abcdef@example.org";
        let supis = ["001010000000001", nai, "99970", "999700000000002", "001010000000000000"];
        let mut supis: Vec<Supi> = supis.iter().filter_map(|s| s.parse().ok()).collect();
        assert!(supis.len() >= 3 && supis.iter().any(|s| imsi(*s).is_none()));
        let mut entries = Entries::default();
        for (slot, supi) in (0..).zip(&supis) {
            let ue = UeId { slot, generation: 1 };
            entries.set(*supi, DirectoryEntry { registered: Some(ue), sqn: None });
            assert_eq!(entries.get(*supi).and_then(|e| e.registered), Some(ue));
        }
        supis.sort();
        assert!(entries.registered().map(|(supi, _)| supi).eq(supis.iter().copied()));
        supis.iter().for_each(|supi| entries.set(*supi, DirectoryEntry::default()));
        assert_eq!(entries.registered().count() + entries.by_imsi.len() + entries.others.len(), 0);
    }
}
