//! How NGAP writes the identifiers that every part shares.

use whimbrel_ids::{
    AmfId, AmfUeNgapId, DecodeErrorKind, FiveQi, GlobalGnbId, Guami, NrCellId, PduSessionId, PlmnId, Qfi,
    RanUeNgapId, SNssai, STmsi, Tac, Tai, Teid, Tmsi,
};

use crate::aper::codec::{Int, IntExt};
#[cfg(any(test, feature = "samples"))]
use crate::aper::sample::Source;
use crate::aper::{Aper, Codec, Fault, Reader, Writer};
use crate::container::read_extensions;

impl Aper for AmfUeNgapId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let v = r.whole(0, AmfUeNgapId::MAX)?;
        AmfUeNgapId::new(v).ok_or_else(|| r.fault(DecodeErrorKind::InvalidValue))
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.whole(self.value(), 0, AmfUeNgapId::MAX);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        pick(s, |s| AmfUeNgapId::new(s.within(0, AmfUeNgapId::MAX)))
    }
}

impl Aper for RanUeNgapId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        <Int<0, 0xffff_ffff>>::read(r).map(RanUeNgapId)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.whole(u64::from(self.0), 0, 0xffff_ffff);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        RanUeNgapId(s.within(0, 0xffff_ffff) as u32)
    }
}

impl Aper for PlmnId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        PlmnId::from_ngap_octets(<[u8; 3]>::read(r)?).ok_or(Fault::NotComprehended)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.octets(&self.ngap_octets());
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        pick(s, |s| PlmnId::from_ngap_octets(core::array::from_fn(|_| s.number() as u8)))
    }
}

impl Aper for Tac {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Tac::from_octets(<[u8; 3]>::read(r)?))
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.octets(&self.octets());
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        Tac::from_octets(<[u8; 3]>::sample(s))
    }
}

/// The two leading bits of a sequence that has no optional component but `iE-Extensions`.
struct SequenceHead {
    additions: bool,
    extensions: bool,
}

impl SequenceHead {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self { additions: r.bit()?, extensions: r.bit()? })
    }

    /// Skips what follows the root components.
    fn skip_rest(self, r: &mut Reader<'_>) -> Result<(), Fault> {
        if self.extensions {
            read_extensions(r, |_, _| Ok(false))?;
        }
        if self.additions {
            r.skip_additions()?;
        }
        Ok(())
    }
}

impl Aper for Tai {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let head = SequenceHead::read(r)?;
        let tai = Tai { plmn: PlmnId::read(r)?, tac: Tac::read(r)? };
        head.skip_rest(r)?;
        Ok(tai)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bits(0, 2);
        self.plmn.write(w);
        self.tac.write(w);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        Tai { plmn: PlmnId::sample(s), tac: Tac::sample(s) }
    }
}

impl Aper for SNssai {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let additions = r.bit()?;
        let has_sd = r.bit()?;
        let extensions = r.bit()?;
        let [sst] = <[u8; 1]>::read(r)?;
        let sd = if has_sd {
            let [a, b, c] = <[u8; 3]>::read(r)?;
            Some(u32::from_be_bytes([0, a, b, c]))
        } else {
            None
        };
        SequenceHead { additions, extensions }.skip_rest(r)?;
        Ok(SNssai::new(sst, sd))
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bit(false);
        w.bit(self.sd().is_some());
        w.bit(false);
        w.bits(u64::from(self.sst), 8);
        if let Some(sd) = self.sd() {
            w.octets(&sd.to_be_bytes()[1..]);
        }
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        SNssai::new(s.number() as u8, s.flip().then(|| s.within(0, 0xff_fffe) as u32))
    }
}

impl Aper for Guami {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let head = SequenceHead::read(r)?;
        let plmn = PlmnId::read(r)?;
        // Region, set and pointer (8, 10 and 6 bits) fill three octets, and follow a PLMN, which ends with one.
        let amf_id = AmfId::from_octets(r.array()?);
        head.skip_rest(r)?;
        Ok(Guami { plmn, amf_id })
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bits(0, 2);
        self.plmn.write(w);
        w.octets(&self.amf_id.octets());
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        Guami { plmn: PlmnId::sample(s), amf_id: AmfId::from_octets(<[u8; 3]>::sample(s)) }
    }
}

impl Aper for STmsi {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let head = SequenceHead::read(r)?;
        let set = r.bits(10)? as u16;
        let pointer = r.bits(6)? as u8;
        let tmsi = Tmsi(u32::from_be_bytes(<[u8; 4]>::read(r)?));
        head.skip_rest(r)?;
        Ok(STmsi { set, pointer, tmsi })
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bits(0, 2);
        w.bits(u64::from(self.set & 0x3ff), 10);
        w.bits(u64::from(self.pointer & 0x3f), 6);
        w.octets(&self.tmsi.0.to_be_bytes());
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        let amf_id = AmfId::from_octets(<[u8; 3]>::sample(s));
        STmsi { set: amf_id.set(), pointer: amf_id.pointer(), tmsi: Tmsi(s.number() as u32) }
    }
}

/// The encoding allows 0 to 255; a value that is no identity of TS 24.007 §11.2.3.1b is not comprehended.
impl Aper for PduSessionId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let v: u8 = <Int<0, 255>>::read(r)?;
        PduSessionId::new(v).ok_or(Fault::NotComprehended)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.whole(u64::from(self.value()), 0, 255);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        pick(s, |s| PduSessionId::new(s.within(1, 15) as u8))
    }
}

impl Aper for Qfi {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let v: u8 = <IntExt<0, 63>>::read(r)?;
        Qfi::new(v).ok_or(Fault::NotComprehended)
    }
    fn write(&self, w: &mut Writer<'_>) {
        <IntExt<0, 63>>::write(&self.value(), w);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        pick(s, |s| Qfi::new(s.within(0, 63) as u8))
    }
}

impl Aper for FiveQi {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        <IntExt<0, 255>>::read(r).map(FiveQi)
    }
    fn write(&self, w: &mut Writer<'_>) {
        <IntExt<0, 255>>::write(&self.0, w);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        FiveQi(s.number() as u8)
    }
}

impl Aper for Teid {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Teid(u32::from_be_bytes(<[u8; 4]>::read(r)?)))
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.octets(&self.0.to_be_bytes());
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        Teid(s.number() as u32)
    }
}

impl Aper for NrCellId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.align();
        NrCellId::new(r.bits(36)?).ok_or(Fault::NotComprehended)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.align();
        w.bits(self.value(), 36);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        pick(s, |s| NrCellId::new(s.within(0, (1 << 36) - 1)))
    }
}

/// A PLMN and a `CHOICE` whose first alternative is `BIT STRING (SIZE (22..32))`.
impl Aper for GlobalGnbId {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let head = SequenceHead::read(r)?;
        let plmn = PlmnId::read(r)?;
        if r.bit()? {
            return Err(Fault::NotComprehended);
        }
        let bits = r.whole(22, 32)? as u8;
        r.align();
        let gnb_id = r.bits(u32::from(bits))? as u32;
        head.skip_rest(r)?;
        GlobalGnbId::new(plmn, gnb_id, bits).ok_or(Fault::NotComprehended)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bits(0, 2);
        self.plmn.write(w);
        w.bit(false);
        w.whole(u64::from(self.bits()), 22, 32);
        w.align();
        w.bits(u64::from(self.gnb_id), u32::from(self.bits()));
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        let plmn = PlmnId::sample(s);
        pick(s, |s| {
            let bits = s.within(22, 32) as u8;
            GlobalGnbId::new(plmn, (s.number() as u32) >> (32 - bits), bits)
        })
    }
}

/// The first that is valid; each type has enough of them.
#[cfg(any(test, feature = "samples"))]
fn pick<T>(s: &mut Source, mut some: impl FnMut(&mut Source) -> Option<T>) -> T {
    loop {
        if let Some(v) = some(s) {
            return v;
        }
    }
}
