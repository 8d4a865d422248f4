//! Two gNBs under one Global RAN Node ID (TS 38.413 §9.3.1.5).
//!
//! A gNB that has restarted without its state sends NG SETUP on a new association under the identity of an older one (§8.7.1.1, TS
//! 23.527 §6.2.2). The identity alone proves nothing, since cells broadcast it; so it matters where the newcomer connects from:
//!
//! - If the configuration lists gNBs, from a network that it lists for this one: the new association takes the identity over at once. From
//!   elsewhere NG SETUP is refused, as it is for a gNB that is not listed.
//! - Without that list, from an address of the holder's association that SCTP has confirmed: at once, too. The former association counts as not set up.
//! - From any other address: the holder is *probed* below NGAP, which each SCTP endpoint answers. If it is silent for [`PROBES`] times
//!   [`PROBE_INTERVAL`], 3 s, it loses the identity; if it answers, NG SETUP is refused with a time to wait. So a gNB that crashed and came
//!   back under a new address waits for 3 s, and no other host takes the place of a gNB that is alive.
//!
//! An attacker may come first; then the operator disconnects it ([`RanNodes::disconnect`]), and its addresses are *barred* from the identity
//! for as long as the gNB may wait before it tries again.
//!
//! A restarted gNB is silent on its former association, which SCTP soon aborts. If a message arrives over it all the same, or if it still
//! stands when NG SETUP is due there, two gNBs use one identity. The identity is *contested* from then on: the gNB that has it keeps it as
//! long as its association stands, and NG SETUP under it on any other association is refused, with a time to wait. So two gNBs displace
//! each other only once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{GlobalGnbId, Instant};
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseProtocol};

use super::setup::{Applicant, refuse};
use super::{RanNode, RanNodes, RanOutput};
use crate::config::{AllowedGnb, IpPrefix};
use crate::envelope::AssociationId;
use crate::event::{RanEvent, SetupRefusal};

/// How long an identity stays contested after the last sign of a second gNB. A gNB that is refused comes back within a minute, the longest
/// time to wait (TS 38.413 §9.3.1.56).
const CONTESTED_FOR: Duration = Duration::from_secs(600);

/// Time between two probes of a holder; each also asks what came of the one before.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Probes that a holder may leave unanswered. With one packet in three lost each way, all of them
/// or their answers are lost in one case of 1,200. They are counted, so that a core that stalls meanwhile takes no identity.
const PROBES: u8 = 12;

/// How long the addresses of a gNB that the operator disconnected are barred from its identity: the longest time to wait (TS 38.413
/// §9.3.1.56), so that a gNB that was refused meanwhile comes first.
const BARRED_FOR: Duration = Duration::from_secs(60);

/// NG SETUP that is answered when the holder of the identity has answered a probe, or has not.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PendingNgSetup {
    association: AssociationId,
    applicant: Applicant,
    /// Probes so far.
    probes: u8,
    /// When the next one is due, or the holder counts as silent.
    due: Instant,
}

/// Sources that an identity is closed to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BarredSources {
    sources: Vec<IpPrefix>,
    until: Instant,
}

/// The right of a newcomer to an identity, as far as it is known at NG SETUP.
pub(super) enum Ownership {
    /// The newcomer takes it, from its holder if there is one.
    Granted,
    /// Its holder is to be probed.
    Probed(AssociationId),
    /// The newcomer does not get it.
    Refused(Cause, SetupRefusal),
}

/// An association of the former primary, as its gNB is recognised here.
#[derive(Clone, Debug)]
pub struct HeldName {
    /// Identifier of the association.
    pub name: AssociationId,
    /// The gNB, if one has set up on it.
    pub gnb: Option<GlobalGnbId>,
    /// The networks that this gNB connects from.
    pub networks: Vec<IpPrefix>,
}

impl HeldName {
    /// True if the address is in the gNB's networks. The identity alone is no proof, because every cell
    /// broadcasts the identity of its gNB.
    pub fn is_at(&self, from: Option<IpAddr>) -> bool {
        from.is_some_and(|from| self.networks.iter().any(|n| n.contains(from)))
    }
}

/// When to look again whether NG SETUP on an association still waits for a holder; `None` if it does not wait.
pub(super) fn decides(
    claims: &BTreeMap<GlobalGnbId, PendingNgSetup>,
    association: AssociationId,
    now: Instant,
) -> Option<Instant> {
    claims.values().any(|c| c.association == association).then(|| now + PROBE_INTERVAL)
}

impl RanNodes {
    /// The entry of a gNB in the list of those that may set up.
    pub(super) fn listed(&self, gnb: GlobalGnbId) -> Option<&AllowedGnb> {
        self.config.amf.gnbs.iter().find(|l| l.plmn == gnb.plmn && l.gnb_id == gnb.gnb_id)
    }

    /// The address that an association came from. Further addresses count for a holder alone: there they let the gNB that has the identity
    /// come back, and keep no other gNB from it.
    fn verified_address(&self, association: AssociationId) -> Option<IpAddr> {
        self.nodes.get(&association)?.addresses.first().map(IpAddr::to_canonical)
    }

    /// Checks the gNB and the address of its association against the list of permitted gNBs; `None` if that
    /// list is empty.
    fn is_permitted(&self, association: AssociationId, gnb: GlobalGnbId) -> Option<Result<(), SetupRefusal>> {
        if self.config.amf.gnbs.is_empty() {
            return None;
        }
        let Some(listed) = self.listed(gnb) else { return Some(Err(SetupRefusal::NotListed)) };
        let address = self.verified_address(association);
        let inside = |n: &IpPrefix| address.is_some_and(|address| n.contains(address));
        Some(listed.networks.iter().any(inside).then_some(()).ok_or(SetupRefusal::OutsideNetworks))
    }

    /// Checks whether a further association may join a gNB that is set up (TS 38.412 §7). It has to come from
    /// a network that the list has for this gNB or, without a list, from an address that the gNB already
    /// uses.
    pub(super) fn may_join(
        &self,
        association: AssociationId,
        gnb: GlobalGnbId,
        holder: AssociationId,
    ) -> Result<(), SetupRefusal> {
        self.is_permitted(association, gnb).unwrap_or_else(|| match self.is_at_holder(association, gnb) {
            true => Ok(()),
            false => Err(SetupRefusal::FurtherElsewhere { holder }),
        })
    }

    /// The associations, and where their gNBs connect from: their addresses, or what the list says.
    pub fn held_names(&self) -> Vec<HeldName> {
        let networks = |gnb| match self.listed(gnb) {
            Some(listed) => listed.networks.clone(),
            None => self.addresses(gnb).into_iter().map(IpPrefix::of_address).collect(),
        };
        let held = |(name, node): (&AssociationId, &RanNode)| HeldName {
            name: *name,
            gnb: node.gnb,
            networks: node.gnb.map(networks).unwrap_or_default(),
        };
        self.nodes.iter().map(held).collect()
    }

    fn is_at_holder(&self, association: AssociationId, gnb: GlobalGnbId) -> bool {
        self.verified_address(association).is_some_and(|address| self.addresses(gnb).contains(&address))
    }

    /// Judges NG SETUP under an identity.
    pub(super) fn judge_ownership(
        &mut self,
        now: Instant,
        association: AssociationId,
        gnb: GlobalGnbId,
    ) -> Ownership {
        let permitted = self.is_permitted(association, gnb);
        let listed = permitted.is_some();
        if let Some(Err(why)) = permitted {
            return Ownership::Refused(CauseMisc::Unspecified.into(), why);
        }
        if self.is_barred(now, association, gnb) {
            return Ownership::Refused(CauseMisc::OmIntervention.into(), SetupRefusal::Disconnected);
        }
        let in_use = |holder| {
            let cause = CauseProtocol::MessageNotCompatibleWithReceiverState.into();
            Ownership::Refused(cause, SetupRefusal::IdentityInUse { holder })
        };
        if let Some(holder) = self.holder_of_contested(now, association, gnb) {
            return in_use(holder);
        }
        let Some(holder) = self.find(gnb).filter(|holder| *holder != association) else {
            return Ownership::Granted;
        };
        if listed || self.is_at_holder(association, gnb) {
            return Ownership::Granted;
        }
        // One newcomer at a time; and a gNB that is up under another identity has no reason to change it.
        if self.claims.contains_key(&gnb) || self.is_set_up(association) {
            return in_use(holder);
        }
        Ownership::Probed(holder)
    }

    fn is_barred(&self, now: Instant, association: AssociationId, gnb: GlobalGnbId) -> bool {
        let barred = self.barred.get(&gnb).filter(|b| now < b.until);
        let address = self.verified_address(association);
        barred.zip(address).is_some_and(|(b, address)| b.sources.iter().any(|s| s.contains(address)))
    }

    /// The holder of an identity is probed; NG SETUP is answered when that has ended.
    pub(super) fn begin_claim(
        &mut self,
        now: Instant,
        (association, holder): (AssociationId, AssociationId),
        applicant: Applicant,
        out: &mut RanOutput,
    ) {
        let gnb = applicant.gnb;
        out.events.push(RanEvent::IdentityClaimed { association, holder, gnb });
        self.probe(gnb, out);
        self.claims
            .insert(gnb, PendingNgSetup { association, applicant, probes: 1, due: now + PROBE_INTERVAL });
    }

    fn probe(&self, gnb: GlobalGnbId, out: &mut RanOutput) {
        out.probes.extend(self.nodes.iter().filter(|(_, n)| n.gnb == Some(gnb)).map(|(a, _)| *a));
    }

    /// Returns true if NG SETUP on the association waits for the holder of this identity. Requests of the
    /// association under other identities are dropped, because its gNB has sent NG SETUP again.
    pub(super) fn waits_for_holder(&mut self, association: AssociationId, gnb: GlobalGnbId) -> bool {
        self.claims.retain(|claimed, c| c.association != association || *claimed == gnb);
        self.claims.get(&gnb).is_some_and(|c| c.association == association)
    }

    /// The peer of an association gave a sign of life after it was probed ([`RanOutput::probes`]).
    pub fn answered_probe(&mut self, association: AssociationId) -> RanOutput {
        let mut out = RanOutput::default();
        self.lives(association, &mut out);
        out
    }

    /// A gNB is alive: a claim on its identity is refused.
    fn lives(&mut self, association: AssociationId, out: &mut RanOutput) {
        let Some(gnb) = self.nodes.get(&association).and_then(|n| n.gnb) else { return };
        self.refuse_claim(gnb, association, out);
    }

    /// Refuses NG SETUP that waits, because this association has the identity.
    pub(super) fn refuse_claim(&mut self, gnb: GlobalGnbId, holder: AssociationId, out: &mut RanOutput) {
        let Some(claim) = self.claims.remove(&gnb) else { return };
        let cause = CauseProtocol::MessageNotCompatibleWithReceiverState.into();
        let why = SetupRefusal::IdentityInUse { holder };
        out.events.push(RanEvent::IdentityContested { gnb, holder, other: claim.association });
        refuse(claim.association, Some(gnb), cause, why, out);
    }

    /// An association is gone: its claim ends, and one on its gNB's identity is decided at once.
    pub(super) fn claims_without(&mut self, association: AssociationId, gnb: Option<GlobalGnbId>) {
        self.claims.retain(|_, claim| claim.association != association);
        if let Some(claim) = gnb.and_then(|gnb| self.claims.get_mut(&gnb)) {
            claim.due = Instant::ZERO;
        }
    }

    /// Probes again, or decides.
    pub(super) fn claims_due(&mut self, now: Instant, out: &mut RanOutput) {
        let due: Vec<GlobalGnbId> =
            self.claims.iter().filter(|(_, c)| c.due <= now).map(|(gnb, _)| *gnb).collect();
        for gnb in due {
            let holder = self.find(gnb);
            let Some(claim) = self.claims.get_mut(&gnb) else { continue };
            if holder.is_some() && claim.probes < PROBES {
                (claim.probes, claim.due) = (claim.probes + 1, now + PROBE_INTERVAL);
                self.probe(gnb, out);
                continue;
            }
            let Some(PendingNgSetup { association, applicant, .. }) = self.claims.remove(&gnb) else {
                continue;
            };
            if let Some(holder) = holder {
                out.events.push(RanEvent::HolderSilent { association, holder, gnb });
            }
            // Since the claim began, the operator may have disconnected the gNB, or changed the list.
            let mut admission = self.is_permitted(association, gnb).unwrap_or(Ok(()));
            if admission.is_ok() && self.is_barred(now, association, gnb) {
                admission = Err(SetupRefusal::Disconnected);
            }
            if admission.is_ok() {
                admission = self.make_room(association, Some(gnb), out).map_err(SetupRefusal::Limit);
            }
            if let Err(why) = admission {
                refuse(association, Some(gnb), CauseMisc::OmIntervention.into(), why, out);
                continue;
            }
            self.set_up(now, association, applicant, out);
        }
    }

    /// When [`RanNodes::claims_due`] has something to do.
    pub(super) fn next_claim(&self) -> Option<Instant> {
        self.claims.values().map(|c| c.due).min()
    }

    /// The operator disconnects a gNB: its associations are aborted, and for a while its addresses do not get its identity. `None`: it is
    /// not set up.
    pub fn disconnect(&mut self, now: Instant, gnb: GlobalGnbId) -> Option<RanOutput> {
        let its = self.nodes.iter().filter(|(_, n)| n.gnb == Some(gnb));
        let abort: Vec<AssociationId> = its.map(|(association, _)| *association).collect();
        let association = *abort.first()?;
        // Only those that it connected from are barred.
        let its = self.nodes.values().filter(|n| n.gnb == Some(gnb));
        let sources: BTreeSet<IpAddr> =
            its.filter_map(|n| n.addresses.first()).map(IpAddr::to_canonical).collect();
        let sources = sources.into_iter().map(IpPrefix::of_source).collect();
        self.barred.retain(|_, b| now < b.until);
        self.barred.insert(gnb, BarredSources { sources, until: now + BARRED_FOR });
        self.contested.remove(&gnb);
        let events = vec![RanEvent::Disconnected { association, gnb }];
        Some(RanOutput { events, abort, ..RanOutput::default() })
    }

    /// The association that holds a contested identity, for which NG SETUP on another one is refused.
    fn holder_of_contested(
        &mut self,
        now: Instant,
        association: AssociationId,
        gnb: GlobalGnbId,
    ) -> Option<AssociationId> {
        self.contested.get(&gnb).filter(|until| now < **until)?;
        let holder = self.find(gnb).filter(|holder| *holder != association)?;
        self.contested.insert(gnb, now + CONTESTED_FOR);
        Some(holder)
    }

    /// A message came over an association, or it still stands when a dead one would not: if its identity was taken over, two gNBs use
    /// that identity.
    pub(super) fn is_alive(&mut self, now: Instant, association: AssociationId, out: &mut RanOutput) {
        self.lives(association, out);
        let displaced = self.nodes.get_mut(&association).and_then(|n| n.displaced.take());
        let Some(gnb) = displaced else { return };
        let Some(holder) = self.find(gnb) else { return };
        self.contested.retain(|_, until| now < *until);
        // Each conflict needs two associations that are set up; beyond the limit of gNBs it is reported but not stored.
        if self.contested.len() < self.config.limits.ran_nodes as usize {
            self.contested.insert(gnb, now + CONTESTED_FOR);
        }
        out.events.push(RanEvent::IdentityContested { gnb, holder, other: association });
    }
}
