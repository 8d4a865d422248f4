//! Handover and its keys: TS 33.501 §6.9.2.1, §6.9.2.3.

use whimbrel_ids::{GlobalGnbId, Instant, PduSessionId, RanUeNgapId, Tai};
use whimbrel_security::{KAmf, KGnb, Nh};

use super::{Event, Output, Ue, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::UplinkMessage;

/// Next hop chaining counts: three bits.
const NCCS: u8 = 8;

/// Keys of the access stratum.
#[derive(Clone, Debug)]
pub(super) struct AsKeys {
    k_amf: KAmf,
    k_gnb: KGnb,
    /// NCC of the key in use.
    ncc: u8,
    /// The newest derived NH, with its NCC.
    nh: Nh,
    nh_ncc: u8,
}

impl AsKeys {
    /// The keys of an initial context: K_gNB has NCC 0, the first NH has NCC 1 (TS 33.501 §6.9.2.1.1).
    pub(super) fn initial(k_amf: &KAmf, k_gnb: KGnb) -> Self {
        let nh = k_amf.first_nh(&k_gnb);
        Self { k_amf: k_amf.clone(), k_gnb, ncc: 0, nh, nh_ncc: 1 }
    }

    /// Derives the NH of an NCC, step by step.
    fn advance(&mut self, ncc: u8) {
        for _ in 0..NCCS {
            if self.nh_ncc == ncc {
                return;
            }
            self.nh = self.k_amf.next_nh(&self.nh);
            self.nh_ncc = (self.nh_ncc + 1) % NCCS;
        }
    }

    /// The key of a new cell: horizontal derivation if the NCC is the same, else from the NH of the NCC (TS 33.501
    /// §6.9.2.3.4).
    fn go_over(&mut self, ncc: u8, pci: u16, arfcn_dl: u32) {
        if ncc == self.ncc {
            self.k_gnb = self.k_gnb.k_ng_ran_star(pci, arfcn_dl);
        } else {
            self.advance(ncc % NCCS);
            self.k_gnb = self.nh.k_ng_ran_star(pci, arfcn_dl);
            self.ncc = ncc;
        }
    }
}

impl Ue {
    /// Handles a handover command of the gNB.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        (to, target): (GlobalGnbId, RanUeNgapId),
        tai: Tai,
        (ncc, pci, arfcn_dl): (u8, u16, u32),
        sessions: &[PduSessionId],
        out: &mut Outbox<Output>,
    ) {
        if let Some(faults) = self.faults.as_mut().filter(|f| f.ignore_handovers > 0) {
            faults.ignore_handovers -= 1;
            return;
        }
        if !self.connected {
            return;
        }
        if let Some(keys) = &mut self.as_keys {
            keys.go_over(ncc, pci, arfcn_dl);
        }
        let gone = |s: &&mut super::session::UeSession| s.user_plane && !sessions.contains(&s.id);
        for session in self.sessions.iter_mut().filter(gone) {
            session.user_plane = false;
            event(Event::UserPlane { session: session.id, up: false }, out);
        }
        out.push(Output::Radio(UplinkMessage::HandoverComplete { to, target }));
        event(Event::HandedOver { to }, out);
        // A cell outside the registration area makes it register there (TS 23.502 §4.9.1.3.3 step 12).
        self.camp(now, tai, out);
    }

    /// The AS keys change to the present K_AMF (TS 33.501 §6.9.2.3.4).
    pub(super) fn change_key_set(&mut self) {
        if let (Some(security), Some(count)) = (&self.security, self.k_gnb_count) {
            let k_gnb = security.k_amf.k_gnb(count);
            self.as_keys = Some(Box::new(AsKeys::initial(&security.k_amf, k_gnb)));
        }
    }

    /// Checks the target's key against the UE's.
    pub(super) fn judge_handover_key(&self, k_gnb: &[u8; 32], out: &mut Outbox<Output>) {
        if self.as_keys.as_ref().is_none_or(|keys| keys.k_gnb.octets() != k_gnb) {
            violation(Violation::HandoverKeyDiffers, out);
        }
    }

    /// Checks the AMF's {NH, NCC} against the UE's chain; it must be ahead of the one in use.
    pub(super) fn judge_next_hop(&self, ncc: u8, nh: &[u8; 32], out: &mut Outbox<Output>) {
        let fits = self.as_keys.as_ref().is_some_and(|keys| {
            let mut ahead = keys.clone();
            ahead.advance(ncc % NCCS);
            ncc != keys.ncc && ahead.nh.octets() == nh
        });
        if !fits {
            violation(Violation::NextHopDiffers, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 33.501 §6.9.2.3.4
    fn horizontal_and_vertical_derivation() {
        let k_amf = KAmf::new([7; 32]);
        let k_gnb = KGnb::new([9; 32]);
        let mut keys = AsKeys::initial(&k_amf, k_gnb.clone());
        keys.go_over(0, 1, 2);
        assert_eq!(keys.k_gnb, k_gnb.k_ng_ran_star(1, 2));
        let second = k_amf.next_nh(&k_amf.first_nh(&k_gnb));
        keys.go_over(2, 3, 4);
        assert_eq!(keys.k_gnb, second.k_ng_ran_star(3, 4));
        // After seven steps the NCC has wrapped.
        let mut nh = second;
        (0..7).for_each(|_| nh = k_amf.next_nh(&nh));
        keys.go_over(1, 5, 6);
        assert_eq!(keys.k_gnb, nh.k_ng_ran_star(5, 6));
    }
}
