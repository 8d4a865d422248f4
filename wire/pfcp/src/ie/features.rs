//! What either side can do.

use crate::codec::flags;

flags! {
    /// UP Function Features (TS 29.244 §8.2.25). Only what this core offers or looks for has a name; the
    /// rest keeps its bit.
    pub struct UpFunctionFeatures(u64, 6): "UP Function Features" {
        BUCP = 5 / 1,
        DDND = 5 / 2,
        DLBD = 5 / 3,
        TRST = 5 / 4,
        /// The UP function chooses F-TEIDs.
        FTUP = 5 / 5,
        PFDM = 5 / 6,
        HEEU = 5 / 7,
        TREU = 5 / 8,
        /// It sends end markers.
        EMPU = 6 / 1,
        /// It takes traffic endpoints (PDI optimisation).
        PDIU = 6 / 2,
        UDBC = 6 / 3,
        QUOAC = 6 / 4,
        TRACE = 6 / 5,
        /// It leads packets to networks behind UEs.
        FRRT = 6 / 6,
        PFDE = 6 / 7,
        EPFAR = 6 / 8,
        DPDRA = 7 / 1,
        ADPDP = 7 / 2,
        /// It allocates UE IP addresses.
        UEIP = 7 / 3,
        SSET = 7 / 4,
        /// It measures numbers of packets.
        MNOP = 7 / 5,
        MTE = 7 / 6,
        /// It takes several messages in one datagram.
        BUNDL = 7 / 7,
        GCOM = 7 / 8,
        MPAS = 8 / 1,
        RTTL = 8 / 2,
        VTIME = 8 / 3,
        NORP = 8 / 4,
        IPTV = 8 / 5,
        /// It takes IPv6 prefixes of other lengths than 64.
        IP6PL = 8 / 6,
        TSCU = 8 / 7,
        MPTCP = 8 / 8,
        DDDS = 9 / 7,
    }
    /// CP Function Features (TS 29.244 §8.2.58). Up to Release 15 it has one octet, and some UPFs refuse a longer one: the second is written
    /// if a flag in it is set.
    pub struct CpFunctionFeatures(u16, 2, at least 1): "CP Function Features" {
        LOAD = 5 / 1,
        OVRL = 5 / 2,
        EPFAR = 5 / 3,
        SSET = 5 / 4,
        BUNDL = 5 / 5,
        MPAS = 5 / 6,
        ARDR = 5 / 7,
        UIAUR = 5 / 8,
        PSUCC = 6 / 1,
        RPGUR = 6 / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Ie;

    #[test] // TS 29.244 §8.2.58: one octet up to Release 15; a UPF that takes no more set up no association
    fn the_second_octet_of_cp_function_features_is_written_only_if_it_says_something() {
        let octets = |features: CpFunctionFeatures| {
            let mut out = Vec::new();
            features.write(&mut out);
            assert_eq!(CpFunctionFeatures::read(&mut whimbrel_ids::Reader::new(&out)), Ok(features));
            out
        };
        assert_eq!(octets(CpFunctionFeatures::default()), [0]);
        assert_eq!(octets(CpFunctionFeatures::LOAD | CpFunctionFeatures::OVRL), [3]);
        assert_eq!(octets(CpFunctionFeatures::LOAD | CpFunctionFeatures::PSUCC), [1, 1]);
    }
}
