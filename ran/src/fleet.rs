//! Subscriptions for many UEs, each with its own key, derived from one seed, with which the core can be provisioned
//! too.

use whimbrel_ids::{Pei, Supi};
use whimbrel_security::{K, Opc, kdf};

/// Function codes under which keys are drawn from a seed: codes that TS 33.220 Annex B does not assign.
const FC_KEYS: u8 = 0xf1;

/// A subscription, as provisioned in a core.
#[derive(Clone, Debug)]
pub struct ProvisionedUe {
    /// SUPI of the subscriber.
    pub supi: Supi,
    /// The UE's IMEISV.
    pub pei: Pei,
    /// Subscriber key K.
    pub k: [u8; 16],
    /// OPc of the subscriber.
    pub opc: [u8; 16],
}

impl ProvisionedUe {
    /// The subscription of a SUPI under a seed.
    pub fn derive(seed: &[u8; 32], supi: Supi) -> Self {
        let imsi = supi.imsi();
        let keys = kdf(seed, FC_KEYS, &[imsi.as_bytes()]);
        let (mut k, mut opc) = ([0; 16], [0; 16]);
        k.copy_from_slice(&keys[..16]);
        opc.copy_from_slice(&keys[16..]);
        // A type allocation code for test equipment (00101), the last digits of the IMSI, software version 01.
        let serial = supi.digits().skip(imsi.len().saturating_sub(9));
        let digits = [0, 0, 1, 0, 1].into_iter().chain(serial).chain([0; 9]).take(14).chain([0, 1]);
        let pei =
            Pei::from_digits(digits).unwrap_or_else(|| unreachable!("sixteen decimal digits are an IMEISV"));
        Self { supi, pei, k, opc }
    }

    /// The USIM's keyed functions.
    pub fn key(&self) -> (K, Opc) {
        (K::new(self.k), Opc::new(self.opc))
    }
}

/// `count` subscriptions with consecutive IMSIs from `first`; fewer if the digits overflow.
pub fn subscriptions(seed: &[u8; 32], first: Supi, count: u32) -> Vec<ProvisionedUe> {
    let imsi = first.imsi();
    let width = imsi.len();
    let from: u64 = imsi.parse().unwrap_or(0);
    let supis = (0..u64::from(count)).map_while(|i| format!("{:0width$}", from + i).parse::<Supi>().ok());
    supis.filter(|s| s.imsi().len() == width).map(|supi| ProvisionedUe::derive(seed, supi)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_key_and_the_same_seed_gives_the_same() {
        let first: Supi = "imsi-999700000000098".parse().unwrap();
        let some = subscriptions(&[1; 32], first, 3);
        assert_eq!(some[2].supi.imsi(), "999700000000100");
        assert_ne!(some[0].k, some[1].k);
        assert_ne!(some[0].k, some[0].opc);
        assert_eq!(some[1].k, subscriptions(&[1; 32], first, 3)[1].k);
        assert_ne!(some[1].k, subscriptions(&[2; 32], first, 3)[1].k);
        assert_eq!(some[2].pei.to_string(), "imeisv-0010100000010001");
        assert_eq!(subscriptions(&[1; 32], "999999".parse().unwrap(), 3).len(), 1);
    }
}
