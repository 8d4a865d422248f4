//! NAS node selection of a gNB that is connected to several AMFs: TS 38.410 §6.6, TS 23.501 §5.21, §6.3.5.
//!
//! It is a layer between the gNB's state machine, which has one NG interface, and the associations with the AMFs. A UE's messages go to the AMF that
//! holds it; those of a new UE to the AMF of its 5G-S-TMSI or GUAMI, else to one by relative capacity. It speaks NGAP with the state machine, too: NG
//! RESET of the UEs of a lost AMF, and AMF CONFIGURATION UPDATE with the GUAMIs that all AMFs together serve.
//!
//! Not supported: further associations with one AMF (TS 38.412 §7), and OVERLOAD START of one AMF alone, which holds for all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_ids::{AmfUeNgapId, Guami, RanUeNgapId};
use whimbrel_ngap::{
    AmfConfigurationUpdate, AmfStatusIndication, Cause, CauseMisc, Message, NgReset, ProcedureCode,
    ResetType, ServedGuamiItem, TriggeringMessage, UeAssociatedLogicalNgConnectionItem, peek,
};

use super::Gnb;

/// Which of a gNB's AMFs, in the order of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AmfIndex(pub u8);

impl AmfIndex {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Input from the association with one AMF.
#[derive(Clone, Copy, Debug)]
pub enum AmfInput<'a> {
    /// The association is up, with this number of outbound streams.
    Up(u16),
    /// The association is lost, or could not be set up.
    Down,
    /// An NGAP message was received.
    Ngap {
        /// SCTP stream of the message.
        stream: u16,
        /// The message as it came.
        octets: &'a [u8],
    },
}

/// A message for an AMF.
#[derive(Debug)]
pub(crate) struct ForAmf {
    pub(crate) amf: AmfIndex,
    pub(crate) stream: u16,
    pub(crate) octets: Vec<u8>,
}

/// An input for the gNB's state machine.
#[derive(Debug)]
pub(crate) enum ForGnb {
    AssociationUp(u16),
    AssociationDown,
    Ngap {
        /// The AMF to which answers go; none: the layer itself has written the message.
        from: Option<AmfIndex>,
        /// The connection has come to this AMF, which chooses its stream if it sends first.
        moved: Option<RanUeNgapId>,
        stream: u16,
        octets: Vec<u8>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AmfState {
    #[default]
    Down,
    /// NG SETUP REQUEST is on its way, or was refused.
    SettingUp,
    Up,
}

/// A GUAMI of an AMF that its AMF STATUS INDICATION has made unavailable, with the name of the AMF that serves its UEs.
#[derive(Debug)]
struct UnavailableGuami {
    guami: Guami,
    backup: Option<String>,
}

/// One of the AMFs.
#[derive(Debug, Default)]
struct SelectableAmf {
    state: AmfState,
    /// The association was down once: the start of a run does not wait for it.
    failed: bool,
    name: String,
    guamis: Vec<ServedGuamiItem>,
    unavailable: Vec<UnavailableGuami>,
    capacity: u8,
    streams: u16,
    /// Its share of the new UEs that it has not got yet, in units of capacity.
    credit: i32,
}

/// Why an AMF cannot take the messages of a UE that it has served.
enum Elsewhere<'a> {
    /// This AMF serves them.
    No,
    /// Another one does, whose name may be known.
    Yes(Option<&'a str>),
}

impl SelectableAmf {
    fn is_up(&self) -> bool {
        self.state == AmfState::Up
    }

    /// Where the UEs of a GUAMI that is this AMF's are served.
    fn elsewhere(&self, is: impl Fn(Guami) -> bool) -> Elsewhere<'_> {
        match self.unavailable.iter().find(|u| is(u.guami)) {
            Some(u) => Elsewhere::Yes(u.backup.as_deref()),
            None => Elsewhere::No,
        }
    }

    fn serves(&self, is: impl Fn(Guami) -> bool) -> bool {
        self.guamis.iter().any(|item| is(item.guami)) || self.unavailable.iter().any(|u| is(u.guami))
    }
}

/// The AMFs of a gNB, and which of them holds each UE.
#[derive(Debug)]
pub struct AmfSelection {
    amfs: Vec<SelectableAmf>,
    /// The AMF of each UE-associated connection.
    ues: BTreeMap<RanUeNgapId, AmfIndex>,
    /// Connections that go on with a backup AMF, which has sent nothing on them yet.
    given_to_backup: BTreeSet<RanUeNgapId>,
    /// NG SETUP REQUEST of the gNB.
    setup_request: Vec<u8>,
    /// The state machine has an association.
    connected: bool,
    /// The AMF whose message the state machine answers at present.
    answered: Option<AmfIndex>,
    for_gnb: VecDeque<ForGnb>,
    for_amfs: Vec<ForAmf>,
}

impl AmfSelection {
    /// So many AMFs, without an association yet.
    pub fn new(amfs: u8) -> Self {
        Self {
            amfs: (0..amfs).map(|_| SelectableAmf::default()).collect(),
            ues: BTreeMap::new(),
            given_to_backup: BTreeSet::new(),
            setup_request: Vec::new(),
            connected: false,
            answered: None,
            for_gnb: VecDeque::new(),
            for_amfs: Vec::new(),
        }
    }

    /// True once each AMF is set up, or could not be reached.
    pub fn has_tried_all(&self) -> bool {
        self.amfs.iter().all(|amf| amf.is_up() || amf.failed)
    }

    /// The AMFs that are set up.
    pub fn up(&self) -> usize {
        self.amfs.iter().filter(|amf| amf.is_up()).count()
    }

    /// The AMF that holds a connection.
    pub fn amf_of(&self, id: RanUeNgapId) -> Option<AmfIndex> {
        self.ues.get(&id).copied()
    }

    /// The next input for the state machine. Its outputs until the next one are answers to that.
    pub(crate) fn next_for_gnb(&mut self) -> Option<ForGnb> {
        self.answered = None;
        let next = self.for_gnb.pop_front()?;
        if let ForGnb::Ngap { from, .. } = &next {
            self.answered = *from;
        }
        Some(next)
    }

    /// The messages that are to be sent.
    pub(crate) fn take_for_amfs(&mut self) -> Vec<ForAmf> {
        core::mem::take(&mut self.for_amfs)
    }

    /// Handles an input of an association.
    pub(crate) fn handle(&mut self, gnb: &Gnb, amf: AmfIndex, input: AmfInput<'_>) {
        let Some(of) = self.amfs.get_mut(amf.index()) else { return };
        match input {
            AmfInput::Up(streams) => {
                *of = SelectableAmf {
                    state: AmfState::SettingUp,
                    streams,
                    failed: of.failed,
                    ..Default::default()
                };
                // An AMF that has set up its association again has lost all connections (RFC 9260 §5.2.4.1 A).
                self.drop_ues(amf);
                if core::mem::replace(&mut self.connected, true) {
                    let octets = self.setup_request.clone();
                    self.for_amfs.push(ForAmf { amf, stream: 0, octets });
                } else {
                    self.for_gnb.push_back(ForGnb::AssociationUp(streams));
                }
            }
            AmfInput::Down => {
                *of = SelectableAmf { failed: true, ..Default::default() };
                self.drop_ues(amf);
                if self.amfs.iter().all(|amf| amf.state == AmfState::Down) {
                    if core::mem::take(&mut self.connected) {
                        self.for_gnb.push_back(ForGnb::AssociationDown);
                    }
                } else if gnb.is_up() {
                    self.announce_guamis();
                }
            }
            AmfInput::Ngap { stream, octets } => self.received(gnb, amf, stream, octets),
        }
    }

    /// A message of an AMF.
    fn received(&mut self, gnb: &Gnb, amf: AmfIndex, stream: u16, octets: &[u8]) {
        let Some(of) = self.amfs.get_mut(amf.index()) else { return };
        let (mut octets, mut moved) = (octets.to_vec(), None);
        match peek(&octets).map(|found| (found.procedure_code, found)) {
            Some((ProcedureCode::NG_SETUP, _)) => match Message::decode(&octets) {
                Ok(Message::NgSetupResponse(m)) if of.state == AmfState::SettingUp => {
                    of.state = AmfState::Up;
                    of.name.clone_from(&m.amf_name);
                    of.guamis = m.served_guami_list;
                    of.capacity = m.relative_amf_capacity;
                    if gnb.is_up() {
                        return self.announce_guamis();
                    }
                    self.for_gnb.push_back(ForGnb::Ngap { from: Some(amf), moved: None, stream, octets });
                    return self.announce_guamis();
                }
                // Another AMF serves the gNB meanwhile.
                Ok(Message::NgSetupFailure(_)) if gnb.is_up() => return of.failed = true,
                _ => {}
            },
            Some((ProcedureCode::AMF_CONFIGURATION_UPDATE, _)) => {
                if let Ok(Message::AmfConfigurationUpdate(mut m)) = Message::decode(&octets) {
                    self.update(amf, &m);
                    if !m.served_guami_list.is_empty() {
                        m.served_guami_list = self.guamis();
                    }
                    m.amf_tnl_association_to_add_list.clear();
                    m.amf_tnl_association_to_remove_list.clear();
                    octets = Message::from(m).to_vec();
                }
            }
            Some((ProcedureCode::AMF_STATUS_INDICATION, _)) => {
                if let Ok(Message::AmfStatusIndication(m)) = Message::decode(&octets) {
                    self.becomes_unavailable(gnb, amf, &m);
                    return self.announce_guamis();
                }
            }
            // The UE may have been given to this AMF (TS 23.501 §5.21.2.2.1).
            Some((_, found)) => {
                let connection = |id: &RanUeNgapId| gnb.amf_ue_ngap_id_of(*id).flatten();
                if let Some(id) = found.ran_ue_ngap_id
                    && let Some(holder) = self.ues.get_mut(&id)
                    && connection(&id).is_none_or(|known| Some(known) == found.amf_ue_ngap_id)
                {
                    let is_first = core::mem::replace(holder, amf) != amf || self.given_to_backup.remove(&id);
                    moved = is_first.then_some(id);
                }
            }
            None => {}
        }
        self.for_gnb.push_back(ForGnb::Ngap { from: Some(amf), moved, stream, octets });
    }

    /// AMF CONFIGURATION UPDATE (TS 38.413 §8.7.3).
    fn update(&mut self, amf: AmfIndex, m: &AmfConfigurationUpdate) {
        let Some(of) = self.amfs.get_mut(amf.index()) else { return };
        of.name = m.amf_name.clone().unwrap_or_else(|| core::mem::take(&mut of.name));
        of.capacity = m.relative_amf_capacity.unwrap_or(of.capacity);
        if !m.served_guami_list.is_empty() {
            of.guamis.clone_from(&m.served_guami_list);
            of.unavailable.retain(|u| !m.served_guami_list.iter().any(|item| item.guami == u.guami));
        }
    }

    /// AMF STATUS INDICATION (TS 38.413 §8.7.6). Connected UEs go on with the backup AMF (TS 23.501 §5.21.2.2.1), also when the association with their former one ends.
    fn becomes_unavailable(&mut self, gnb: &Gnb, amf: AmfIndex, m: &AmfStatusIndication) {
        let Some(of) = self.amfs.get_mut(amf.index()) else { return };
        for item in &m.unavailable_guami_list {
            of.guamis.retain(|served| served.guami != item.guami);
            of.unavailable.retain(|u| u.guami != item.guami);
            let backup = item.backup_amf_name.clone();
            of.unavailable.push(UnavailableGuami { guami: item.guami, backup });
        }
        for item in &m.unavailable_guami_list {
            let Some(backup) = item.backup_amf_name.as_deref().and_then(|name| self.named(name)) else {
                continue;
            };
            let of_guami = self.ues.iter_mut().filter(|(id, holder)| {
                **holder == amf && gnb.guami_of(**id).is_none_or(|guami| guami == item.guami)
            });
            for (id, holder) in of_guami {
                *holder = backup;
                self.given_to_backup.insert(*id);
            }
        }
    }

    fn guamis(&self) -> Vec<ServedGuamiItem> {
        let up = self.amfs.iter().filter(|amf| amf.is_up());
        up.flat_map(|amf| &amf.guamis).cloned().collect()
    }

    /// Has the state machine know what all AMFs together serve.
    fn announce_guamis(&mut self) {
        let mut update = AmfConfigurationUpdate::new();
        update.served_guami_list = self.guamis();
        if !update.served_guami_list.is_empty() {
            self.tell(update.into());
        }
    }

    /// The connections of an AMF have ended.
    fn drop_ues(&mut self, amf: AmfIndex) {
        let lost: Vec<RanUeNgapId> =
            self.ues.iter().filter(|(_, of)| **of == amf).map(|(id, _)| *id).collect();
        self.ues.retain(|_, of| *of != amf);
        self.given_to_backup.retain(|id| self.ues.contains_key(id));
        for some in lost.chunks(RESET_ITEMS) {
            self.reset(some);
        }
    }

    fn reset(&mut self, connections: &[RanUeNgapId]) {
        let item = |id: &RanUeNgapId| {
            let mut item = UeAssociatedLogicalNgConnectionItem::new();
            item.ran_ue_ngap_id = Some(*id);
            item
        };
        let part = ResetType::PartOfNgInterface(connections.iter().map(item).collect());
        self.tell(NgReset::new(Cause::Misc(CauseMisc::Unspecified), part).into());
    }

    fn tell(&mut self, message: Message) {
        self.for_gnb.push_back(ForGnb::Ngap { from: None, moved: None, stream: 0, octets: message.to_vec() });
    }

    /// Sends a message of the state machine to the AMF that it concerns.
    pub(crate) fn send(&mut self, gnb: &Gnb, stream: u16, octets: Vec<u8>) {
        let Some(found) = peek(&octets) else { return };
        let begins = found.kind == TriggeringMessage::InitiatingMessage;
        let is_up = |amf: &SelectableAmf| amf.is_up();
        let to = match found.procedure_code {
            ProcedureCode::NG_SETUP => {
                self.setup_request.clone_from(&octets);
                return self.send_to_all(|amf| amf.state == AmfState::SettingUp, &octets);
            }
            ProcedureCode::RAN_CONFIGURATION_UPDATE if begins => return self.send_to_all(is_up, &octets),
            ProcedureCode::NG_RESET if begins => return self.send_reset(&octets),
            ProcedureCode::INITIAL_UE_MESSAGE => {
                let Some(id) = found.ran_ue_ngap_id else { return };
                let to = match found.five_g_s_tmsi {
                    Some(s_tmsi) => {
                        self.select(|g| g.amf_id.set() == s_tmsi.set && g.amf_id.pointer() == s_tmsi.pointer)
                    }
                    None => self.select(|g| gnb.guami_of(id) == Some(g)),
                };
                let Some(amf) = to else { return self.reset(&[id]) };
                self.ues.insert(id, amf);
                to
            }
            ProcedureCode::PATH_SWITCH_REQUEST => {
                let Some(id) = found.ran_ue_ngap_id else { return };
                let to = self.select(|g| gnb.guami_of(id) == Some(g));
                to.map(|amf| self.ues.insert(id, amf));
                to
            }
            ProcedureCode::ERROR_INDICATION if self.answered.is_some() => self.answered,
            _ => match found.ran_ue_ngap_id {
                Some(id) => {
                    let to = self.amf_of(id).or(self.answered);
                    to.map(|amf| self.ues.insert(id, amf));
                    to
                }
                // An answer to what the layer has written goes to no AMF.
                None if begins => {
                    let any = self.amfs.iter().position(is_up).map(|i| AmfIndex(i as u8));
                    self.answered.or(any)
                }
                None => self.answered,
            },
        };
        if let Some(amf) = to {
            self.send_to(amf, stream, octets);
        }
        if found.procedure_code == ProcedureCode::UE_CONTEXT_RELEASE
            && let Some(id) = found.ran_ue_ngap_id
        {
            self.ues.remove(&id);
            self.given_to_backup.remove(&id);
        }
    }

    fn send_to(&mut self, amf: AmfIndex, stream: u16, octets: Vec<u8>) {
        let Some(of) = self.amfs.get(amf.index()).filter(|of| of.state != AmfState::Down) else { return };
        // An association with fewer streams than that which the gNB counts with.
        let stream = if stream < of.streams { stream } else { 1.min(of.streams.saturating_sub(1)) };
        self.for_amfs.push(ForAmf { amf, stream, octets });
    }

    fn send_to_all(&mut self, which: impl Fn(&SelectableAmf) -> bool, octets: &[u8]) {
        let to: Vec<usize> = (0..self.amfs.len()).filter(|i| self.amfs.get(*i).is_some_and(&which)).collect();
        to.into_iter().for_each(|i| self.send_to(AmfIndex(i as u8), 0, octets.to_vec()));
    }

    /// NG RESET of the gNB: to each AMF what is its own.
    fn send_reset(&mut self, octets: &[u8]) {
        let Ok(Message::NgReset(m)) = Message::decode(octets) else { return };
        let ResetType::PartOfNgInterface(items) = m.reset_type else {
            self.ues.clear();
            return self.send_to_all(SelectableAmf::is_up, octets);
        };
        let mut parts: BTreeMap<AmfIndex, Vec<UeAssociatedLogicalNgConnectionItem>> = BTreeMap::new();
        for item in items {
            if let Some(amf) = item.ran_ue_ngap_id.and_then(|id| self.ues.remove(&id)) {
                parts.entry(amf).or_default().push(item);
            }
        }
        for (amf, items) in parts {
            let part = NgReset::new(m.cause.clone(), ResetType::PartOfNgInterface(items));
            self.send_to(amf, 0, Message::from(part).to_vec());
        }
    }

    fn named(&self, name: &str) -> Option<AmfIndex> {
        let found = self.amfs.iter().position(|amf| amf.is_up() && amf.name == name);
        found.map(|i| AmfIndex(i as u8))
    }

    /// The AMF of a new connection (TS 23.501 §6.3.5): the one with this GUAMI, or its backup, or another one by relative capacity. One with capacity
    /// 0 gets no UE that is not its own.
    fn select(&mut self, is: impl Fn(Guami) -> bool) -> Option<AmfIndex> {
        if let Some(i) = self.amfs.iter().position(|amf| amf.is_up() && amf.serves(&is)) {
            match self.amfs.get(i).map(|amf| amf.elsewhere(&is)) {
                Some(Elsewhere::Yes(name)) => {
                    if let Some(backup) = name.and_then(|name| self.named(name)) {
                        return Some(backup);
                    }
                }
                _ => return Some(AmfIndex(i as u8)),
            }
        }
        let total: i32 = self.amfs.iter().filter(|amf| amf.is_up()).map(|amf| i32::from(amf.capacity)).sum();
        let candidates = self.amfs.iter_mut().enumerate().filter(|(_, amf)| amf.is_up() && amf.capacity > 0);
        let (i, chosen) = candidates
            .map(|(i, amf)| {
                amf.credit += i32::from(amf.capacity);
                (i, amf)
            })
            .max_by_key(|(i, amf)| (amf.credit, core::cmp::Reverse(*i)))?;
        chosen.credit -= total;
        Some(AmfIndex(i as u8))
    }
}

/// Connections in one NG RESET that the layer writes: far fewer than the bound of its list (65536, TS 38.413 §9.2.6.11).
const RESET_ITEMS: usize = 1024;

impl Gnb {
    /// A connection uses another stream from now on, as another AMF has it.
    pub(crate) fn change_stream(&mut self, id: RanUeNgapId, stream: u16) {
        self.contexts.get_mut(id.0).into_iter().for_each(|c| c.stream = stream);
    }

    /// The AMF UE NGAP ID of a connection, if it is there and has one.
    fn amf_ue_ngap_id_of(&self, id: RanUeNgapId) -> Option<Option<AmfUeNgapId>> {
        self.contexts.get(id.0).map(|c| c.amf_ue_ngap_id)
    }

    /// The GUAMI of a connection's UE.
    fn guami_of(&self, id: RanUeNgapId) -> Option<Guami> {
        self.contexts.get(id.0)?.guami
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use whimbrel_ids::{AmfId, GlobalGnbId, Instant, PlmnId, SNssai, STmsi, Tac, Tmsi};
    use whimbrel_ngap::{
        DownlinkNasTransport, NgSetupResponse, PlmnSupportItem, RrcEstablishmentCause, TransferSyntax,
        UnavailableGuamiItem,
    };

    use super::*;
    use crate::gnb::{GnbConfig, Input, Output};
    use crate::outbox::Outbox;
    use crate::radio::{Connect, DownlinkMessage, UeId, UplinkMessage};

    fn guami(pointer: u8) -> Guami {
        Guami { plmn: PlmnId::TEST, amf_id: AmfId::new(2, 1, pointer).unwrap() }
    }

    /// A gNB with AMFs of one set, which are called 0, 1 and so on and have these relative capacities.
    struct GnbOfSet {
        gnb: Gnb,
        selection: AmfSelection,
        sent: Vec<ForAmf>,
        released: Vec<UeId>,
    }

    impl GnbOfSet {
        fn with(capacities: &[u8]) -> Self {
            let id = GlobalGnbId::new(PlmnId::TEST, 1, 28).unwrap();
            let config =
                GnbConfig::new(id, Tac::new(1).unwrap(), vec![SNssai::sst(1)], Ipv4Addr::LOCALHOST.into());
            let selection = AmfSelection::new(capacities.len() as u8);
            let mut network =
                Self { gnb: Gnb::new(config), selection, sent: Vec::new(), released: Vec::new() };
            for (i, capacity) in capacities.iter().enumerate() {
                network.amf(i as u8, AmfInput::Up(8));
                let served = vec![ServedGuamiItem::new(guami(i as u8))];
                let slices = vec![PlmnSupportItem::new(PlmnId::TEST, vec![SNssai::sst(1)])];
                network.says(i as u8, 0, NgSetupResponse::new(i.to_string(), served, *capacity, slices));
            }
            network.sent.clear();
            network
        }

        fn amf(&mut self, amf: u8, input: AmfInput<'_>) {
            self.selection.handle(&self.gnb, AmfIndex(amf), input);
            self.follow();
        }

        fn says(&mut self, amf: u8, stream: u16, message: impl Into<Message>) {
            self.amf(amf, AmfInput::Ngap { stream, octets: &message.into().to_vec() });
        }

        fn follow(&mut self) {
            loop {
                self.sent.append(&mut self.selection.take_for_amfs());
                match self.selection.next_for_gnb() {
                    None => return,
                    Some(ForGnb::AssociationUp(streams)) => {
                        self.takes(Input::AssociationUp { streams, syntax: TransferSyntax::Per });
                    }
                    Some(ForGnb::AssociationDown) => self.takes(Input::AssociationDown),
                    Some(ForGnb::Ngap { moved, stream, octets, .. }) => {
                        moved.into_iter().for_each(|id| self.gnb.change_stream(id, stream));
                        self.takes(Input::Ngap { stream, octets: &octets });
                    }
                }
            }
        }

        fn takes(&mut self, input: Input<'_>) {
            let mut out = Outbox::new();
            self.gnb.handle(Instant::ZERO, input, &mut out);
            for output in out.drain() {
                match output {
                    Output::Ngap { stream, octets } => self.selection.send(&self.gnb, stream, octets),
                    Output::Radio(ue, DownlinkMessage::Released) => self.released.push(ue),
                    Output::Event(super::super::Event::Violation { violation, .. }) => panic!("{violation}"),
                    _ => {}
                }
            }
        }

        /// A UE connects: the AMF to which its message goes, and its connection.
        fn connects(&mut self, ue: u32, of: Option<u8>) -> Option<(u8, RanUeNgapId)> {
            let s_tmsi = of.map(|pointer| STmsi { set: 1, pointer, tmsi: Tmsi(ue) });
            let cause = RrcEstablishmentCause::MoData;
            let connect = Connect { nas: vec![0x7e], cause, s_tmsi, guami: of.map(guami) };
            self.sent.clear();
            self.takes(Input::Radio(UeId(ue), UplinkMessage::Connect(connect)));
            self.follow();
            let first = self.sent.pop()?;
            Some((first.amf.0, peek(&first.octets)?.ran_ue_ngap_id?))
        }

        /// The AMF to which a message of a connected UE goes.
        fn sends(&mut self, ue: u32) -> u8 {
            self.sent.clear();
            self.takes(Input::Radio(UeId(ue), UplinkMessage::Nas(vec![0x7e])));
            self.follow();
            self.sent.pop().unwrap().amf.0
        }
    }

    fn downlink(amf_ue_ngap_id: u64, id: RanUeNgapId) -> DownlinkNasTransport {
        DownlinkNasTransport::new(AmfUeNgapId::new(amf_ue_ngap_id).unwrap(), id, vec![0x7e])
    }

    #[test] // TS 23.501 §6.3.5, §5.19.3: by relative capacity; one with capacity 0 gets no new UE
    fn new_ues_are_distributed_by_relative_capacity() {
        let mut network = GnbOfSet::with(&[100, 50, 0]);
        let amfs: Vec<u8> = (0..30).map(|ue| network.connects(ue, None).unwrap().0).collect();
        assert_eq!([0, 1, 2].map(|amf| amfs.iter().filter(|of| **of == amf).count()), [20, 10, 0]);
        // Its own UEs come to it nevertheless.
        assert_eq!(network.connects(31, Some(2)).unwrap().0, 2);
        // A UE of an AMF that is not connected goes to another one of the set.
        assert!(network.connects(32, Some(7)).is_some());
        network.amf(0, AmfInput::Down);
        network.amf(1, AmfInput::Down);
        assert_eq!(network.connects(33, None), None, "no AMF takes new UEs");
        assert_eq!(network.released.last(), Some(&UeId(33)), "and its RRC connection is released");
    }

    #[test] // TS 23.501 §5.21.2.2.1; TS 38.413 §8.7.6.2: the backup AMF serves the UEs of an unavailable GUAMI
    fn ues_of_an_unavailable_amf_go_to_its_backup() {
        let mut network = GnbOfSet::with(&[255, 255, 255]);
        let (amf, id) = network.connects(1, Some(0)).unwrap();
        assert_eq!(amf, 0);
        network.says(0, 1 + (id.0 % 7) as u16, downlink(9, id));
        assert_eq!(network.sends(1), 0);
        let mut item = UnavailableGuamiItem::new(guami(0));
        item.backup_amf_name = Some("2".into());
        network.says(0, 0, AmfStatusIndication::new(vec![item]));
        assert_eq!(network.sends(1), 2, "messages of a connected UE");
        assert_eq!(network.connects(2, Some(0)).unwrap().0, 2, "a UE that returns");
        // It serves again.
        let mut update = AmfConfigurationUpdate::new();
        update.served_guami_list = vec![ServedGuamiItem::new(guami(0))];
        network.says(0, 0, update);
        assert_eq!(network.sent.last().map(|sent| sent.amf.0), Some(0), "the acknowledgement");
        assert_eq!(network.connects(3, Some(0)).unwrap().0, 0);
        network.amf(0, AmfInput::Down);
        assert_eq!(network.released, [UeId(3)], "the first stays connected when its former AMF has stopped");
        // On the stream that its present AMF chooses: a violation would panic.
        network.says(2, 5, downlink(9, id));
    }

    #[test] // TS 23.501 §5.21.2.2.1: an AMF that goes on with a connection sends over its own association
    fn a_connection_that_another_amf_goes_on_with_is_followed() {
        let mut network = GnbOfSet::with(&[255, 255]);
        let (amf, id) = network.connects(1, Some(0)).unwrap();
        network.says(amf, 1 + (id.0 % 7) as u16, downlink(9, id));
        // On the stream that this AMF chooses: a violation would panic.
        network.says(1, 5, downlink(9, id));
        assert_eq!(network.sends(1), 1);
        assert_eq!(network.selection.amf_of(id), Some(AmfIndex(1)));
    }

    #[test]
    fn the_ues_of_a_lost_amf_are_released_and_return_at_another_one() {
        let mut network = GnbOfSet::with(&[255, 255]);
        let [(first, _), (second, _)] =
            [network.connects(1, Some(0)), network.connects(2, Some(1))].map(Option::unwrap);
        assert_eq!([first, second], [0, 1]);
        network.amf(0, AmfInput::Down);
        assert_eq!(network.released, [UeId(1)]);
        assert!(network.gnb.is_up());
        assert!(network.sent.is_empty(), "the AMF that is left hears nothing of them: {:?}", network.sent);
        assert_eq!(network.connects(1, Some(0)).unwrap().0, 1);
        network.amf(1, AmfInput::Down);
        assert!(!network.gnb.is_up());
    }
}
