//! Where a UE is and may be: TAI (TS 24.501 §9.11.3.8), TAI list (§9.11.3.9), service area list (§9.11.3.49),
//! PLMN list (TS 24.008 §10.5.1.13), LADN (§9.11.3.29, §9.11.3.30).

use whimbrel_ids::{DecodeError, DecodeErrorKind, Dnn, PlmnId, Reader, Tac, Tai};

use crate::codec::{Ie, write};

/// Tracking areas in one list, all its parts together (TS 24.501 §9.11.3.9); those beyond are neither read nor written.
pub const TAI_LIST_MAX: usize = 16;

fn plmn(r: &mut Reader<'_>) -> Result<PlmnId, DecodeError> {
    let invalid = r.error(DecodeErrorKind::InvalidValue, "PLMN identity");
    PlmnId::from_nas_octets(r.array("PLMN identity")?).ok_or(invalid)
}

fn tac(r: &mut Reader<'_>) -> Result<Tac, DecodeError> {
    r.array("TAC").map(Tac::from_octets)
}

impl Ie for Tai {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { plmn: plmn(r)?, tac: tac(r)? })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.plmn.nas_octets());
        out.extend_from_slice(&self.tac.octets());
    }
}

impl Ie for PlmnId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        plmn(r)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.nas_octets());
    }
}

/// One part of a list of tracking areas, by the way in which it lists them. A part without areas is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartialTaiList {
    /// Areas of one PLMN, one by one (type 00).
    OnePlmn {
        /// PLMN of all the codes.
        plmn: PlmnId,
        /// Tracking area codes of the list.
        tacs: Vec<Tac>,
    },
    /// Areas of one PLMN with consecutive codes (type 01).
    Consecutive {
        /// The first area.
        first: Tai,
        /// How many areas, 1 to 16.
        count: u8,
    },
    /// Areas of several PLMNs (type 10).
    Tais(Vec<Tai>),
}

impl PartialTaiList {
    /// Whether an area is in it.
    pub fn contains(&self, tai: Tai) -> bool {
        match self {
            Self::OnePlmn { plmn, tacs } => *plmn == tai.plmn && tacs.contains(&tai.tac),
            Self::Consecutive { first, count } => {
                let from = first.tac.value();
                first.plmn == tai.plmn && (from..from + u32::from(*count)).contains(&tai.tac.value())
            }
            Self::Tais(tais) => tais.contains(&tai),
        }
    }

    /// How many areas it lists.
    fn len(&self) -> usize {
        match self {
            Self::OnePlmn { tacs, .. } => tacs.len(),
            Self::Consecutive { count, .. } => usize::from(*count),
            Self::Tais(tais) => tais.len(),
        }
    }

    /// Reads the part whose first octet gave `kind` and `count`, and keeps up to `room` of its areas.
    fn decode(kind: u8, count: usize, room: usize, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut part = Self::decode_all(kind, count, r)?;
        match &mut part {
            Self::OnePlmn { tacs, .. } => tacs.truncate(room),
            Self::Consecutive { count, .. } => *count = usize::from(*count).min(room) as u8,
            Self::Tais(tais) => tais.truncate(room),
        }
        Ok(part)
    }

    fn decode_all(kind: u8, count: usize, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match kind {
            0 => {
                Self::OnePlmn { plmn: plmn(r)?, tacs: (0..count).map(|_| tac(r)).collect::<Result<_, _>>()? }
            }
            1 => Self::Consecutive { first: Tai::decode(r)?, count: count as u8 },
            2 => Self::Tais((0..count).map(|_| Tai::decode(r)).collect::<Result<_, _>>()?),
            _ => return Err(r.error(DecodeErrorKind::InvalidValue, "type of list")),
        })
    }

    /// Writes up to `room` of its areas and takes them from `room`; `flag` is the allowed type of a service area list.
    fn encode(&self, flag: u8, room: &mut usize, out: &mut Vec<u8>) {
        let kind = match self {
            Self::OnePlmn { .. } => 0,
            Self::Consecutive { .. } => 1,
            Self::Tais(_) => 2,
        };
        let count = self.len().min(*room);
        if count == 0 {
            return;
        }
        *room -= count;
        out.push(flag | kind << 5 | (count as u8 - 1));
        match self {
            Self::OnePlmn { plmn, tacs } => {
                out.extend_from_slice(&plmn.nas_octets());
                tacs.iter().take(count).for_each(|t| out.extend_from_slice(&t.octets()));
            }
            Self::Consecutive { first, .. } => first.encode(out),
            Self::Tais(tais) => tais.iter().take(count).for_each(|t| t.encode(out)),
        }
    }
}

/// How many areas the octet before a part announces: five bits, one less than the number.
fn count(octet: u8) -> usize {
    usize::from(octet & 0x1f) + 1
}

/// 5GS tracking area identity list (TS 24.501 §9.11.3.9): the registration area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaiList(pub Vec<PartialTaiList>);

impl TaiList {
    /// Of one area.
    pub fn one(tai: Tai) -> Self {
        Self(vec![PartialTaiList::OnePlmn { plmn: tai.plmn, tacs: vec![tai.tac] }])
    }

    /// Whether an area is in it.
    pub fn contains(&self, tai: Tai) -> bool {
        self.0.iter().any(|part| part.contains(tai))
    }
}

/// Areas of one PLMN become one part each, in the order in which they first come.
impl FromIterator<Tai> for TaiList {
    fn from_iter<I: IntoIterator<Item = Tai>>(tais: I) -> Self {
        let mut parts: Vec<(PlmnId, Vec<Tac>)> = Vec::new();
        for tai in tais.into_iter().take(TAI_LIST_MAX) {
            match parts.iter_mut().find(|(plmn, _)| *plmn == tai.plmn) {
                Some((_, tacs)) => tacs.push(tai.tac),
                None => parts.push((tai.plmn, vec![tai.tac])),
            }
        }
        Self(parts.into_iter().map(|(plmn, tacs)| PartialTaiList::OnePlmn { plmn, tacs }).collect())
    }
}

impl Ie for TaiList {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mut parts, mut room) = (Vec::new(), TAI_LIST_MAX);
        while !r.is_empty() && room > 0 {
            let head = r.u8("5GS tracking area identity list")?;
            let part = PartialTaiList::decode(head >> 5 & 0x03, count(head), room, r)?;
            room -= part.len();
            parts.push(part);
        }
        Ok(Self(parts))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut room = TAI_LIST_MAX;
        self.0.iter().for_each(|part| part.encode(0, &mut room, out));
    }
}

/// One part of a service area list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartialServiceArea {
    /// The areas that are listed.
    Areas(PartialTaiList),
    /// All areas of the PLMN (type 11).
    AllOf(PlmnId),
}

impl PartialServiceArea {
    /// How much of the list's room it takes; a whole PLMN counts as one.
    fn len(&self) -> usize {
        match self {
            Self::Areas(list) => list.len(),
            Self::AllOf(_) => 1,
        }
    }
}

/// Service area list (TS 24.501 §9.11.3.49).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAreaList {
    /// Service is not allowed in the areas; if false, it is allowed in them alone.
    pub non_allowed: bool,
    /// The partial lists of areas.
    pub parts: Vec<PartialServiceArea>,
}

impl Ie for ServiceAreaList {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut list = Self { non_allowed: r.peek().is_some_and(|o| o & 0x80 != 0), parts: Vec::new() };
        let mut room = TAI_LIST_MAX;
        while !r.is_empty() && room > 0 {
            let head = r.u8("service area list")?;
            let part = match head >> 5 & 0x03 {
                3 => PartialServiceArea::AllOf(plmn(r)?),
                kind => PartialServiceArea::Areas(PartialTaiList::decode(kind, count(head), room, r)?),
            };
            room -= part.len();
            list.parts.push(part);
        }
        Ok(list)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let flag = if self.non_allowed { 0x80 } else { 0 };
        let mut room = TAI_LIST_MAX;
        for part in &self.parts {
            match part {
                PartialServiceArea::Areas(list) => list.encode(flag, &mut room, out),
                PartialServiceArea::AllOf(_) if room == 0 => {}
                PartialServiceArea::AllOf(plmn) => {
                    room -= 1;
                    out.push(flag | 0x60);
                    out.extend_from_slice(&plmn.nas_octets());
                }
            }
        }
    }
}

/// PLMNs in one list (TS 24.008 §10.5.1.13).
const PLMN_LIST_MAX: usize = 15;

/// PLMN list: the equivalent PLMNs (TS 24.501 §9.11.3.45).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlmnList(pub Vec<PlmnId>);

impl Ie for PlmnList {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut list = Vec::new();
        while r.remaining() >= 3 && list.len() < PLMN_LIST_MAX {
            list.push(plmn(r)?);
        }
        Ok(Self(list))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().take(PLMN_LIST_MAX).for_each(|p| p.encode(out));
    }
}

/// LADNs in one element (TS 24.501 §9.11.3.29, §9.11.3.30).
const LADN_MAX: usize = 8;

/// LADN indication (TS 24.501 §9.11.3.29): the local area data networks that the UE asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadnIndication(pub Vec<Dnn>);

impl Ie for LadnIndication {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut dnns = Vec::new();
        while !r.is_empty() && dnns.len() < LADN_MAX {
            let len = r.u8("LADN indication")?;
            dnns.push(Dnn::decode(&mut r.sub(usize::from(len), "LADN indication")?)?);
        }
        Ok(Self(dnns))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().take(LADN_MAX).for_each(|dnn| write::lv(dnn, out));
    }
}

/// LADN information (TS 24.501 §9.11.3.30): where each local area data network is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LadnInformation(pub Vec<(Dnn, TaiList)>);

impl Ie for LadnInformation {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "LADN information";
        let mut ladns = Vec::new();
        while !r.is_empty() && ladns.len() < LADN_MAX {
            let len = r.u8(IE)?;
            let dnn = Dnn::decode(&mut r.sub(usize::from(len), IE)?)?;
            let len = r.u8(IE)?;
            ladns.push((dnn, TaiList::decode(&mut r.sub(usize::from(len), IE)?)?));
        }
        Ok(Self(ladns))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for (dnn, areas) in self.0.iter().take(LADN_MAX) {
            write::lv(dnn, out);
            write::lv(areas, out);
        }
    }
}
