//! The identifiers that every part shares, in the fast form: numbers and structs.

use core::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_fastwire::{Inline, Schema, Slot, Spot, Writer};
use whimbrel_ids::{
    AmfId, AmfUeNgapId, DecodeError, DecodeErrorKind, FiveQi, GlobalGnbId, Guami, NrCellId, PduSessionId,
    PlmnId, Qfi, RanUeNgapId, SNssai, STmsi, Tac, Tai, Teid, Tmsi,
};

use super::Fast;
use crate::aper::codec::Own;
use crate::ie::{Period, SecurityKey, TransportLayerAddress};

/// Identifiers that are a number.
macro_rules! numbers {
    ($($t:ident: $n:ident $name:literal, |$v:ident| $put:expr, $get:expr;)*) => { $(
        impl Fast<$t> for Own {
            const INLINE: Inline = Inline::Scalar(size_of::<$n>() as u16);
            fn put($v: &$t, spot: Spot, w: &mut Writer<'_>) {
                w.put(spot.at, $n::to_le_bytes($put));
            }
            fn get(slot: Slot<'_, '_>) -> Result<$t, DecodeError> {
                let get: fn($n) -> Option<$t> = $get;
                get($n::from_le_bytes(slot.get()?)).ok_or_else(|| slot.error(DecodeErrorKind::InvalidValue))
            }
            fn declare(_: &mut Schema) -> String {
                $name.to_owned()
            }
        }
    )* };
}
numbers! {
    AmfUeNgapId: u64 "ulong", |v| v.value(), AmfUeNgapId::new;
    RanUeNgapId: u32 "uint", |v| v.0, |v| Some(RanUeNgapId(v));
    PduSessionId: u8 "ubyte", |v| v.value(), PduSessionId::new;
    Qfi: u8 "ubyte", |v| v.value(), Qfi::new;
    FiveQi: u8 "ubyte", |v| v.0, |v| Some(FiveQi(v));
    Teid: u32 "uint", |v| v.0, |v| Some(Teid(v));
    NrCellId: u64 "ulong", |v| v.value(), NrCellId::new;
}

/// Identifiers that are a struct of `size` octets.
macro_rules! structs {
    ($($t:ident: $size:literal $align:literal $body:literal, |$v:ident| $put:expr, $get:expr;)*) => { $(
        impl Fast<$t> for Own {
            const INLINE: Inline = Inline::Struct { size: $size, align: $align };
            fn put($v: &$t, spot: Spot, w: &mut Writer<'_>) {
                let octets: [u8; $size] = $put;
                w.put(spot.at, octets);
            }
            fn get(slot: Slot<'_, '_>) -> Result<$t, DecodeError> {
                let get: fn([u8; $size]) -> Option<$t> = $get;
                get(slot.get()?).ok_or_else(|| slot.error(DecodeErrorKind::InvalidValue))
            }
            fn declare(s: &mut Schema) -> String {
                let name = stringify!($t);
                s.declare(name, |_| format!("struct {name} {{ {} }}\n", $body));
                name.to_owned()
            }
        }
    )* };
}
structs! {
    PlmnId: 3 1 "octets: [ubyte:3];", |v| v.ngap_octets(), PlmnId::from_ngap_octets;
    Tac: 3 1 "octets: [ubyte:3];", |v| v.octets(), |v| Some(Tac::from_octets(v));
    Tai: 6 1 "plmn: [ubyte:3]; tac: [ubyte:3];", |v| {
        let ([a, b, c], [d, e, f]) = (v.plmn.ngap_octets(), v.tac.octets());
        [a, b, c, d, e, f]
    }, |[a, b, c, d, e, f]| Some(Tai { plmn: PlmnId::from_ngap_octets([a, b, c])?, tac: Tac::from_octets([d, e, f]) });
    // TS 23.003 §28.4.2: an SD of all ones means that there is none.
    SNssai: 4 1 "sst: ubyte; sd: [ubyte:3];", |v| {
        let [_, a, b, c] = v.sd().unwrap_or(0xff_ffff).to_be_bytes();
        [v.sst, a, b, c]
    }, |[sst, a, b, c]| {
        let sd = u32::from_be_bytes([0, a, b, c]);
        Some(SNssai::new(sst, (sd != 0xff_ffff).then_some(sd)))
    };
    Guami: 6 1 "plmn: [ubyte:3]; amf_id: [ubyte:3];", |v| {
        let ([a, b, c], [d, e, f]) = (v.plmn.ngap_octets(), v.amf_id.octets());
        [a, b, c, d, e, f]
    }, |[a, b, c, d, e, f]| {
        Some(Guami { plmn: PlmnId::from_ngap_octets([a, b, c])?, amf_id: AmfId::from_octets([d, e, f]) })
    };
    STmsi: 8 4 "amf_set_id: ushort; amf_pointer: ubyte; tmsi: uint;", |v| {
        let ([a, b], [c, d, e, f]) = ((v.set & 0x3ff).to_le_bytes(), v.tmsi.0.to_le_bytes());
        [a, b, v.pointer & 0x3f, 0, c, d, e, f]
    }, |[a, b, pointer, _, c, d, e, f]| {
        let set = u16::from_le_bytes([a, b]);
        let tmsi = Tmsi(u32::from_le_bytes([c, d, e, f]));
        (set <= 0x3ff && pointer <= 0x3f).then_some(STmsi { set, pointer, tmsi })
    };
    GlobalGnbId: 8 4 "plmn: [ubyte:3]; bits: ubyte; gnb_id: uint;", |v| {
        let ([a, b, c], [d, e, f, g]) = (v.plmn.ngap_octets(), v.gnb_id.to_le_bytes());
        [a, b, c, v.bits(), d, e, f, g]
    }, |[a, b, c, bits, d, e, f, g]| {
        GlobalGnbId::new(PlmnId::from_ngap_octets([a, b, c])?, u32::from_le_bytes([d, e, f, g]), bits)
    };
    SecurityKey: 32 1 "octets: [ubyte:32];", |v| v.0, |v| Some(SecurityKey(v));
}

/// An octet more or less than the root values, as [`Period`] in PER: any.
impl Fast<u8> for Period {
    const INLINE: Inline = Inline::Scalar(1);
    fn put(v: &u8, spot: Spot, w: &mut Writer<'_>) {
        w.put(spot.at, [*v]);
    }
    fn get(slot: Slot<'_, '_>) -> Result<u8, DecodeError> {
        slot.get().map(|[v]| v)
    }
    fn declare(_: &mut Schema) -> String {
        "ubyte".to_owned()
    }
}

/// The octets of one address, or of both: 4, 16 or 20 of them.
impl Fast<TransportLayerAddress> for Own {
    const INLINE: Inline = Inline::Vector;

    fn put(v: &TransportLayerAddress, spot: Spot, w: &mut Writer<'_>) {
        match v {
            TransportLayerAddress::V4(a) => w.octets(spot, &a.octets()),
            TransportLayerAddress::V6(a) => w.octets(spot, &a.octets()),
            TransportLayerAddress::V4V6(a, b) => {
                let mut both = [0; 20];
                both[..4].copy_from_slice(&a.octets());
                both[4..].copy_from_slice(&b.octets());
                w.octets(spot, &both);
            }
        }
    }

    fn get(slot: Slot<'_, '_>) -> Result<TransportLayerAddress, DecodeError> {
        let octets = slot.octets()?;
        let v4 = octets.first_chunk::<4>().map(|o| Ipv4Addr::from(*o));
        let v6 = octets.last_chunk::<16>().map(|o| Ipv6Addr::from(*o));
        match (octets.len(), v4, v6) {
            (4, Some(a), _) => Ok(TransportLayerAddress::V4(a)),
            (16, _, Some(b)) => Ok(TransportLayerAddress::V6(b)),
            (20, Some(a), Some(b)) => Ok(TransportLayerAddress::V4V6(a, b)),
            _ => Err(slot.error(DecodeErrorKind::InvalidLength)),
        }
    }

    fn declare(_: &mut Schema) -> String {
        "[ubyte]".to_owned()
    }
}
