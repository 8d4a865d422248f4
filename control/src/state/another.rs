//! UE contexts in large numbers, for demonstrations and benchmarks: each as the registration of another UE of the same kind would leave it.

use std::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{Instant, Pei, Seid, Supi, Teid, Tmsi};
use whimbrel_security::{Bearer, KAmf, NasSecurityContext, NasSide, Nh};

use super::ue_context::UeContext;
use crate::envelope::UeId;
use crate::prf::Prf;

/// Digits of an IMEISV (TS 23.003 §6.2.2).
const IMEISV_DIGITS: u32 = 16;

impl UeContext {
    /// The context of the `n`th UE that has registered as this one did: everything in it that differs between two UEs is another one,
    /// as identities, keys, times, addresses and tunnels. This UE is idle.
    pub fn another(&self, id: UeId, n: u64, supi: Supi, tmsi: Tmsi, prf: &Prf) -> Box<Self> {
        let mut ue = Box::new(self.clone());
        let block = |what: u8| prf.block(u128::from(what) << 64 | u128::from(n));
        let number =
            |what: u8| u64::from_be_bytes(*block(what).first_chunk().expect("eight of sixteen octets"));
        ue.id = id;
        ue.amf.supi = Some(supi);
        ue.amf.claimed = self.amf.claimed.map(|_| supi);
        ue.amf.tmsi = Some(tmsi);
        let pei = number(0) % 10u64.pow(IMEISV_DIGITS);
        let digits = (0..IMEISV_DIGITS).rev().map(|i| (pei / 10u64.pow(i) % 10) as u8);
        ue.amf.pei = self.amf.pei.and_then(|_| Pei::from_digits(digits));
        ue.amf.initial_nas_digest = number(1);
        let key = |what: u8| {
            let mut key = [0; 32];
            key[..16].copy_from_slice(&block(what));
            key[16..].copy_from_slice(&block(what + 1));
            key
        };
        let k_amf = KAmf::new(key(2));
        if let Some(security) = &mut ue.amf.security.current {
            let (ciphering, integrity, counts) =
                (security.ciphering(), security.integrity(), security.counts());
            **security = NasSecurityContext::new(
                NasSide::Network,
                Bearer::NAS_3GPP,
                &k_amf,
                ciphering,
                integrity,
                counts,
            );
        }
        ue.amf.security.k_amf = self.amf.security.k_amf.as_ref().map(|_| k_amf);
        if let Some(next_hop) = &mut ue.amf.security.next_hop {
            next_hop.nh = Nh::new(key(4));
        }
        // UEs have registered in the minute before.
        let earlier = number(6) % 60_000_000;
        let before = |at: Instant| Instant(at.0.saturating_sub(earlier));
        ue.amf.location.seen.iter_mut().for_each(|seen| seen.at = before(seen.at));
        ue.amf.security.authenticated_at = self.amf.security.authenticated_at.map(before);
        ue.amf.implicit_deregistration_at =
            self.amf.implicit_deregistration_at.map(|at| Instant(at.0 + number(6) % 60_000_000));
        for (i, session) in (7..).zip(ue.sessions.values_mut()) {
            let own = number(i);
            session.address.ipv4 = session.address.ipv4.map(|_| Ipv4Addr::from_bits(own as u32));
            session.address.ipv6 = session.address.ipv6.map(|_| Ipv6Addr::from_bits(u128::from(own) << 64));
            session.address.interface_id = own.rotate_left(7).to_be_bytes();
            session.cp_seid = Seid(own.rotate_left(13));
            session.up_seid = session.up_seid.map(|_| Seid(own.rotate_left(29)));
            session.n3.iter_mut().for_each(|n3| n3.teid = Teid((own >> 32) as u32 | 1));
            session.usage.octets = (own >> 40, own >> 38);
        }
        ue
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::flat::Checkpoint;
    use crate::ue_harness::{UeHarness, supi};

    #[test]
    fn another_ue_is_idle_and_valid_and_like_no_other() {
        let first = UeHarness::registered().context().unwrap().clone();
        let prf = Prf::new(&[3; 16]);
        let mut seen = BTreeSet::new();
        for n in 0..50u32 {
            let id = UeId { slot: n, generation: 1 };
            let ue = first.another(id, n.into(), supi(), Tmsi(n), &prf);
            let checkpoint = Checkpoint::of(&ue).expect("it is idle");
            assert!(checkpoint.context().is_ok(), "it is valid");
            let k_amf = *ue.amf.security.k_amf.as_ref().unwrap().octets();
            let s = ue.sessions.values().next().unwrap();
            assert!(seen.insert((k_amf, s.cp_seid, s.address.ipv4)));
            assert_eq!(ue.amf.subscription, first.amf.subscription);
        }
    }
}
