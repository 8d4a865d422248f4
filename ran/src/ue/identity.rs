//! Identities of the UE: SUCI (TS 33.501 §6.12.2, Annex C) and the identification procedure (TS 24.501 §5.4.3).

use whimbrel_ids::Instant;
use whimbrel_nas::ie::{IdentityType, MobileIdentity, Octets, SchemeId, SchemeOutput, Suci};
use whimbrel_nas::mm::{IdentityRequest, IdentityResponse};
use whimbrel_security::{HomeNetworkPublicKey, ProtectionScheme, kdf};

use super::{Event, Output, SuciSource, Timer, Ue, UeConfig, event};
use crate::outbox::Outbox;

/// Function code under which ephemeral keys are drawn from a seed: one that TS 33.220 Annex B does not assign.
const FC_EPHEMERAL: u8 = 0xf0;
/// Draws of an ephemeral key before giving up; one fails in 2^32 (the order of secp256r1).
const DRAWS_MAX: u32 = 4;

impl Ue {
    /// IDENTITY REQUEST (§5.4.3.3).
    pub(super) fn identity_request(&mut self, now: Instant, m: &IdentityRequest, out: &mut Outbox<Output>) {
        event(Event::IdentityAsked(m.identity_type), out);
        let identity = match m.identity_type {
            IdentityType::Suci if self.faults().no_usim => MobileIdentity::NoIdentity,
            IdentityType::Suci => self.suci_identity(now),
            // A broker's UE does not reveal its equipment, which would link its sessions to each other.
            IdentityType::Imei | IdentityType::Imeisv if self.hides_equipment() => MobileIdentity::NoIdentity,
            IdentityType::Imei | IdentityType::Imeisv => MobileIdentity::Pei(self.config.pei),
            IdentityType::Guti => self.guti.map_or(MobileIdentity::NoIdentity, MobileIdentity::Guti),
            IdentityType::STmsi => self.s_tmsi().map_or(MobileIdentity::NoIdentity, MobileIdentity::STmsi),
            IdentityType::MacAddress => MobileIdentity::NoIdentity,
        };
        self.send(IdentityResponse::new(identity), out);
    }

    /// Its SUCI: the same while T3519 runs, then a new one.
    pub(super) fn suci_identity(&mut self, now: Instant) -> MobileIdentity {
        if let Some(suci) = &self.fresh_suci {
            return MobileIdentity::Suci(suci.clone());
        }
        let suci = match &self.config.suci {
            SuciSource::Sap(_) => self.begin_sap(),
            SuciSource::Veil(_) => self.begin_veil(),
            _ => self.make_suci(),
        };
        let Some(suci) = suci else { return MobileIdentity::NoIdentity };
        self.fresh_suci = Some(suci.clone());
        self.timers.start(Timer::T3519, now);
        MobileIdentity::Suci(suci)
    }

    fn make_suci(&mut self) -> Option<Suci> {
        make_suci(&self.config, &mut self.suci_counter)
    }
}

impl UeConfig {
    /// Computes the SUCI in advance, for load generation. The UE reuses it, which a real one must not (TS 33.501
    /// §6.12.2). No effect if the SUPI is not of the home network.
    pub fn precompute_suci(&mut self) {
        if let Some(suci) = make_suci(self, &mut 0) {
            self.suci = SuciSource::Precomputed(suci);
        }
    }
}

fn make_suci(config: &UeConfig, counter: &mut u32) -> Option<Suci> {
    let profile = &config.profile;
    match &config.suci {
        SuciSource::Null => Suci::null(config.supi, profile.home_plmn, profile.routing_indicator),
        SuciSource::Precomputed(suci) => Some(suci.clone()),
        SuciSource::Sap(_) | SuciSource::Veil(_) => None, // each is another request to the broker
        SuciSource::Concealed { key, key_id, seed } => {
            let msin = whimbrel_security::suci::msin_of_supi(profile.home_plmn, config.supi)?;
            let output = (0..DRAWS_MAX).find_map(|_| {
                *counter += 1;
                let ephemeral = kdf(seed, FC_EPHEMERAL, &[&counter.to_be_bytes()]);
                key.conceal(&ephemeral, &msin).ok()
            })?;
            Some(Suci::Imsi {
                plmn: profile.home_plmn,
                routing_indicator: profile.routing_indicator,
                output: concealed(key, *key_id, output)?,
            })
        }
    }
}

fn concealed(key: &HomeNetworkPublicKey, key_id: u8, output: Vec<u8>) -> Option<SchemeOutput> {
    let scheme = match key.scheme() {
        ProtectionScheme::Null => return None,
        ProtectionScheme::ProfileA => SchemeId::PROFILE_A,
        ProtectionScheme::ProfileB => SchemeId::PROFILE_B,
    };
    Some(SchemeOutput::Concealed { scheme, key_id, output: Octets::new(output)? })
}
