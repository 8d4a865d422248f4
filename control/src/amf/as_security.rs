//! AS security: the chain of next hops, and the UE's algorithms in the form that gNBs get.
//!
//! TS 33.501 §6.9.2.1, TS 33.501 §6.9.2.1.1 (key chaining), §6.7.3.1 (a path switch must not lower the algorithms).

use whimbrel_nas::ie::UeSecurityCapability;
use whimbrel_ngap::ie::{NewSecurityContextInd, SecurityContext, SecurityKey, UeSecurityCapabilities};
use whimbrel_security::KGnb;

use crate::state::{AmfContext, NextHop};

/// The {NH, NCC} from which the next gNB derives its key.
#[derive(Clone)]
pub(crate) struct Fresh {
    /// The fresh {NH, NCC} pair.
    pub(crate) context: SecurityContext,
    /// The keys come from a K_AMF that the radio does not know yet.
    pub(crate) new: Option<NewSecurityContextInd>,
}

/// Starts the key chain of a connection with its first K_gNB, which counts as NCC 0.
pub(crate) fn begin_chain(amf: &mut AmfContext, k_gnb: &KGnb) {
    let of = amf.security.ng_ksi;
    amf.security.next_hop =
        amf.security.k_amf.as_ref().map(|k| NextHop { nh: k.first_nh(k_gnb), ncc: 1, ng_ksi: of }.into());
}

/// A fresh {NH, NCC} for a gNB that has taken the UE over (TS 33.501 §6.9.2.3.2). `None`: the radio was never secured on this
/// connection.
///
/// If a newer K_AMF was taken into use since, the chain restarts from it, and the gNB gets the New Security Context Indicator.
pub(crate) fn advance_chain(amf: &mut AmfContext) -> Option<Fresh> {
    let fresh = offer_chain(amf)?;
    settle_chain(amf);
    Some(fresh)
}

/// The UE has arrived at the gNB that got a key of the newer K_AMF: the chain continues from that K_AMF.
pub(crate) fn settle_chain(amf: &mut AmfContext) {
    if amf.security.next_hop.as_ref().is_some_and(|next| next.ng_ksi != amf.security.ng_ksi)
        && let Some(k_amf) = &amf.security.k_amf
    {
        let k_gnb = k_amf.k_gnb(amf.security.as_count.unwrap_or_default());
        begin_chain(amf, &k_gnb);
    }
}

/// The same for a handover target (TS 33.501 §6.9.2.3.3). A restart of the chain takes effect only when the UE has arrived
/// ([`settle_chain`]): if the UE stays, its radio still has the keys of the former K_AMF, and the next gNB needs the indicator again.
pub(crate) fn offer_chain(amf: &mut AmfContext) -> Option<Fresh> {
    let next = amf.security.next_hop.as_ref()?;
    let k_amf = amf.security.k_amf.as_ref()?;
    if next.ng_ksi != amf.security.ng_ksi {
        let k_gnb = k_amf.k_gnb(amf.security.as_count.unwrap_or_default());
        let context = SecurityContext::new(0, SecurityKey(*k_gnb.octets()));
        return Some(Fresh { context, new: Some(NewSecurityContextInd::True) });
    }
    let nh = k_amf.next_nh(&next.nh);
    let ncc = (next.ncc + 1) & 7;
    let context = SecurityContext::new(ncc, SecurityKey(*nh.octets()));
    amf.security.next_hop = Some(NextHop { nh, ncc, ng_ksi: next.ng_ksi }.into());
    Some(Fresh { context, new: None })
}

/// The UE's algorithms in NGAP's form. The first bit is algorithm 0 in NAS and algorithm 1 in NGAP (TS 38.413
/// §9.3.1.86; TS 33.512 §4.2.2.6.2).
pub(crate) fn ue_security_capabilities(capability: &UeSecurityCapability) -> UeSecurityCapabilities {
    let shifted = |map: u8| u16::from(map << 1) << 8;
    UeSecurityCapabilities::new(
        shifted(capability.nea()),
        shifted(capability.nia()),
        shifted(capability.eea()),
        shifted(capability.eia()),
    )
}

#[cfg(test)]
mod tests {
    use whimbrel_nas::ie::NgKsi;

    use super::*;
    use whimbrel_security::{KAmf, NasCount};

    fn secured() -> AmfContext {
        let mut amf = AmfContext::default();
        amf.security.k_amf = Some(KAmf::new([7; 32]));
        amf.security.ng_ksi = NgKsi::native(1);
        let k_gnb = KAmf::new([7; 32]).k_gnb(NasCount::default());
        begin_chain(&mut amf, &k_gnb);
        amf
    }

    #[test] // TS 33.501 §6.9.2.1.1: the first NH is NCC 1 and stays here; each gNB gets the one after, as the UE derives it
    fn the_key_chain_advances_by_one_step_per_gnb() {
        let k_amf = KAmf::new([7; 32]);
        let mut amf = secured();
        let mut nh = k_amf.first_nh(&k_amf.k_gnb(NasCount::default()));
        for step in 2..20u8 {
            nh = k_amf.next_nh(&nh);
            let fresh = advance_chain(&mut amf).unwrap();
            assert_eq!(fresh.context.next_hop_chaining_count, step & 7);
            assert_eq!(fresh.context.next_hop_nh.0, *nh.octets());
            assert!(fresh.new.is_none());
        }
    }

    #[test] // TS 33.501 §6.9.2.3.3: a K_AMF that the radio does not know yet restarts the chain, and the gNB gets the indicator
    fn a_new_k_amf_begins_a_new_chain() {
        let mut amf = secured();
        (amf.security.k_amf, amf.security.ng_ksi) = (Some(KAmf::new([9; 32])), NgKsi::native(2));
        let fresh = advance_chain(&mut amf).unwrap();
        let k_gnb = KAmf::new([9; 32]).k_gnb(NasCount::default());
        assert_eq!((fresh.context.next_hop_chaining_count, fresh.new.is_some()), (0, true));
        assert_eq!(fresh.context.next_hop_nh.0, *k_gnb.octets());
        let fresh = advance_chain(&mut amf).unwrap();
        assert_eq!((fresh.context.next_hop_chaining_count, fresh.new.is_some()), (2, false));
    }

    #[test] // TS 33.501 §6.9.2.3.3: a UE that stays after an offer keeps its keys, and the next gNB gets the indicator of the new K_AMF too
    fn a_new_chain_begins_when_the_ue_has_come() {
        let mut amf = secured();
        (amf.security.k_amf, amf.security.ng_ksi) = (Some(KAmf::new([9; 32])), NgKsi::native(2));
        let k_gnb = KAmf::new([9; 32]).k_gnb(NasCount::default());
        for _ in 0..2 {
            let fresh = offer_chain(&mut amf).unwrap();
            assert_eq!((fresh.context.next_hop_chaining_count, fresh.new.is_some()), (0, true));
            assert_eq!(fresh.context.next_hop_nh.0, *k_gnb.octets());
        }
        settle_chain(&mut amf);
        let fresh = offer_chain(&mut amf).unwrap();
        assert_eq!((fresh.context.next_hop_chaining_count, fresh.new.is_some()), (2, false));
    }

    #[test]
    fn a_radio_without_keys_has_no_chain() {
        assert!(advance_chain(&mut AmfContext::default()).is_none());
    }
}
