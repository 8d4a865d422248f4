//! The directory: the state of each subscriber, its registration and its sequence number.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Instant, PlmnId, SNssai, Supi};
use whimbrel_nas::ie::{SchemeOutput, Suci};
use whimbrel_security::aka;
use whimbrel_security::{
    AuthenticationVector, EapAkaPrimeVector, EapIdentity, HomeNetworkKeys, ProtectionScheme, Rand,
    ServingNetworkName, SqnState, SuciError,
};

use super::{AuthMethod, AuthenticationSubscription, Subscribers};
use crate::envelope::UeId;
use crate::services::nudm::{Answer, AuthData, Identity, Request, Resynchronisation, UdmError, Vector};

/// The entry of one subscriber.
struct Entry {
    registered: Option<UeId>,
    sqn: Option<SqnState>,
}

/// Answers UEs' requests in the order in which the CTA delivers them.
pub struct Directory {
    home: PlmnId,
    keys: HomeNetworkKeys,
    serving_network: ServingNetworkName,
    entries: BTreeMap<Supi, Entry>,
    /// The UEs counted in each slice that has a limit.
    slices: BTreeMap<SNssai, BTreeSet<UeId>>,
}

/// A snapshot for another directory of the same subscribers, without keys and sequence numbers.
#[derive(Debug, Serialize, Deserialize)]
pub struct Registrations {
    registered: BTreeMap<Supi, UeId>,
    slices: BTreeMap<SNssai, BTreeSet<UeId>>,
}

/// The result of a request.
#[derive(Debug)]
pub struct Outcome {
    /// The answer for the UE.
    pub answer: Answer,
    /// The subscriber's former slot, whose context is to be deleted.
    pub superseded: Option<UeId>,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
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
            entries: BTreeMap::new(),
            slices: BTreeMap::new(),
        }
    }

    /// The registered subscribers, and their slices.
    pub fn registrations(&self) -> Registrations {
        let registered = self.entries.iter().filter_map(|(supi, e)| Some((*supi, e.registered?)));
        Registrations { registered: registered.collect(), slices: self.slices.clone() }
    }

    /// Takes over the snapshot of another directory.
    pub fn follow_from(&mut self, Registrations { registered, slices }: Registrations) {
        let entry = |(supi, ue)| (supi, Entry { registered: Some(ue), sqn: None });
        self.entries = registered.into_iter().map(entry).collect();
        self.slices = slices;
    }

    /// A UE that was registered before the core was restarted is registered again, and counts in these slices.
    pub fn restore(&mut self, ue: UeId, supi: Supi, slices: &[(SNssai, u32)]) {
        self.register(ue, supi);
        for (slice, _) in slices {
            self.slices.entry(*slice).or_default().insert(ue);
        }
    }

    /// All registered UEs.
    pub fn all_registered(&self) -> impl Iterator<Item = UeId> + '_ {
        self.entries.values().filter_map(|e| e.registered)
    }

    /// The UE under which a subscriber is registered.
    pub fn registered(&self, supi: Supi) -> Option<UeId> {
        self.entries.get(&supi)?.registered
    }

    /// Answers one request of one UE.
    pub fn handle(
        &mut self,
        now: Instant,
        ue: UeId,
        request: Request,
        subscribers: &mut impl Subscribers,
    ) -> Outcome {
        match request {
            Request::GenerateAuthData { identity, rand, resynchronisation } => {
                let (supi, data) = self.auth_data(now, &identity, Rand(rand), resynchronisation, subscribers);
                Answer::AuthData(data.map_err(|e| (e, supi))).into()
            }
            Request::Subscription(supi) => Answer::Registered(subscribers.subscription(supi)).into(),
            Request::Register(supi) => {
                let answer = Answer::Registered(subscribers.subscription(supi));
                self.follow(ue, &request, answer)
            }
            Request::EnterSlices(slices) => Answer::Full(self.enter_slices(ue, &slices)).into(),
            Request::Deregister(_) => self.follow(ue, &request, Answer::Deregistered),
            Request::RegisterGuest { .. } => self.follow(ue, &request, Answer::GuestRegistered),
        }
    }

    /// Applies a request and its answer from another directory of the same subscribers, of which this one is a replica. The
    /// store is not read, and sequence numbers are not replicated: they continue from the clock and the store.
    pub fn follow(&mut self, ue: UeId, request: &Request, answer: Answer) -> Outcome {
        let mut superseded = None;
        match (request, &answer) {
            (Request::Register(supi), Answer::Registered(Ok(_))) => superseded = self.register(ue, *supi),
            (Request::RegisterGuest { supi, former }, _) => {
                if let Some(former) = former {
                    self.give_up(ue, *former);
                }
                superseded = self.register(ue, *supi);
            }
            (Request::EnterSlices(slices), _) => drop(self.enter_slices(ue, slices)),
            (Request::Deregister(supi), _) => {
                self.leave_slices(ue);
                self.give_up(ue, *supi);
            }
            _ => {}
        }
        Outcome { answer, superseded }
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
        let entry = self.entries.entry(supi).or_insert(Entry { registered: None, sqn: None });
        let sqn = entry.sqn.get_or_insert_with(|| SqnState::new(credentials.sqn_offset));
        if let Some(Resynchronisation { rand, auts }) = resynchronisation {
            let moved = aka::resynchronise(&credentials.functions, &rand, &auts, sqn, now)
                .ok_or(UdmError::BadAuts)?;
            if let Some(offset) = moved {
                subscribers.save_sqn_offset(supi, offset)?;
            }
        }
        let AuthenticationSubscription { functions, method, amf, .. } = &credentials;
        let (sqn, name) = (sqn.next(now), &self.serving_network);
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
        if let Some(entry) = self.entries.get_mut(&supi)
            && entry.registered == Some(ue)
        {
            entry.registered = None;
            if entry.sqn.is_none() {
                self.entries.remove(&supi); // a broker's user, of which nothing is left
            }
        }
    }

    /// Returns the subscriber's former slot.
    fn register(&mut self, ue: UeId, supi: Supi) -> Option<UeId> {
        let entry = self.entries.entry(supi).or_insert(Entry { registered: None, sqn: None });
        let superseded = entry.registered.replace(ue).filter(|&former| former != ue);
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
