//! Invariants that hold after every step, whatever faults the network has.

use std::collections::BTreeSet;

use crate::Sim;
use crate::region::Cluster;

/// With more UEs, a check of all of them after each step would take most of the simulation's time.
const CHECKED_UES_MAX: usize = 64;

impl Sim {
    /// Checks the core as a whole. Each step does it while the core has few UEs; with many, each step looks at those that
    /// changed.
    ///
    /// # Panics
    /// Where something does not hold.
    pub fn check_invariants(&self) {
        let (mut tmsis, mut addresses, mut prefixes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut connections = BTreeSet::new();
        for ue in self.contexts() {
            let id = ue.id;
            for tmsi in [ue.amf.tmsi, ue.amf.former_tmsi].into_iter().flatten() {
                assert!(tmsis.insert(tmsi), "{id:?} shares 5G-TMSI {tmsi:?}");
            }
            // A session that the UPF has lost is about to end, and the UPF may give its address to another one.
            for session in ue.sessions.values().filter(|s| s.up_seid.is_some()) {
                assert!(
                    session.address.ipv4.is_none_or(|a| addresses.insert(a)),
                    "{id:?} shares an IPv4 address"
                );
                assert!(
                    session.address.ipv6.is_none_or(|p| prefixes.insert(p)),
                    "{id:?} shares an IPv6 prefix"
                );
            }
            if let Some(c) = &ue.amf.connection {
                assert!(connections.insert(c.amf_ue_ngap_id), "{id:?} shares an AMF UE NGAP ID");
            }
            if let Some(t) = &ue.amf.mobility.target {
                let own = ue.amf.connection.as_ref().is_some_and(|c| c.amf_ue_ngap_id == t.amf_ue_ngap_id);
                assert!(own || connections.insert(t.amf_ue_ngap_id), "{id:?} shares an AMF UE NGAP ID");
                let stands = self.cta().ran_nodes().is_set_up(t.association);
                assert!(stands, "{id:?} is handed over to a gNB that is gone");
            }
            // A UE of another vendor's AMF is here as long as it has sessions, which that AMF ends.
            if ue.remote_amf.is_some() {
                assert!(!ue.sessions.is_empty() || !ue.is_idle(), "{id:?} has no session");
                continue;
            }
            // An unauthenticated UE without a procedure would never be released.
            let rests = ue.amf.registered || ue.awaits_release();
            assert!(rests || !ue.is_idle(), "{id:?} is neither registered nor registering");
            // A connection, a procedure or a timer must end every context in the end.
            let looked_after =
                ue.is_connected() || !ue.is_idle() || ue.amf.implicit_deregistration_at.is_some();
            assert!(looked_after, "{id:?} would be kept for ever");
            // A UE that is registered for emergency services need not have a subscription (TS 23.501 §5.16.4.1).
            // One that comes from another AMF of the set is registered there until this AMF has it.
            if ue.amf.registered && !ue.amf.emergency && !ue.amf.comes_from_peer() {
                let found = ue.amf.supi.and_then(|s| self.cta().find(s));
                assert!(found.is_some(), "{id:?} is registered here and unknown to the UDM");
            }
        }
        let (used, unauthenticated_ues) = self.cta().occupancy();
        assert_eq!(used, self.contexts().count(), "a slot in use has its UE");
        assert!(unauthenticated_ues as usize <= used);
    }

    pub(crate) fn check(&mut self) {
        if self.observer.has_faulty_cpfs || !self.region_rests() || !self.pair_rests() {
            return; // state that is in flight holds at no process yet
        }
        if self.control.cluster.as_ref().is_some_and(Cluster::awaits_cpfs) {
            return; // nor does that of restored UEs before a CPF has joined
        }
        if self.control.cluster.is_none() {
            self.check_changed();
        }
        if self.ran.ues.len() <= CHECKED_UES_MAX {
            self.check_grants();
            self.check_invariants();
        }
    }
}
