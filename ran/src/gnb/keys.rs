//! Keys of the access stratum in a gNB: TS 33.501 §6.9.2.

use whimbrel_ids::GlobalGnbId;
use whimbrel_security::{KGnb, Nh};

/// Physical cell identifiers: 0 to 1007 (TS 38.211 §7.4.2.1).
const PCIS: u32 = 1008;
/// The frequency of all cells here, as ARFCN-DL (TS 38.104 §5.4.2.1): 3.6 GHz.
pub(crate) const ARFCN_DL: u32 = 640_000;

/// The physical cell identifier of a gNB's one cell.
pub(crate) const fn pci(gnb: GlobalGnbId) -> u16 {
    (gnb.gnb_id % PCIS) as u16
}

/// The key of a connection, and the pair for the next one.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) k_gnb: KGnb,
    /// Next hop chaining count of the key in use.
    pub(super) ncc: u8,
    /// An unused {NH, NCC} of the AMF.
    pub(super) fresh: Option<(u8, Nh)>,
}

impl Keys {
    /// The key of an initial context, with NCC 0 (TS 33.501 §6.9.2.1.1).
    pub(super) fn initial(k_gnb: [u8; 32]) -> Self {
        Self { k_gnb: KGnb::new(k_gnb), ncc: 0, fresh: None }
    }

    /// The key for another gNB's cell with its NCC: vertical derivation if there is a fresh NH, else horizontal (TS
    /// 33.501 §6.9.2.3.1).
    pub(super) fn towards(&self, target: GlobalGnbId) -> Self {
        let (pci, arfcn) = (pci(target), ARFCN_DL);
        let (ncc, k_gnb) = match &self.fresh {
            Some((ncc, nh)) => (*ncc, nh.k_ng_ran_star(pci, arfcn)),
            None => (self.ncc, self.k_gnb.k_ng_ran_star(pci, arfcn)),
        };
        Self { k_gnb, ncc, fresh: None }
    }

    /// The key of a target of an N2 handover, from the pair in HANDOVER REQUEST (TS 33.501 §6.9.2.3.3).
    pub(super) fn of_next_hop(ncc: u8, nh: [u8; 32], own: GlobalGnbId) -> Self {
        Self { k_gnb: Nh::new(nh).k_ng_ran_star(pci(own), ARFCN_DL), ncc, fresh: None }
    }
}
