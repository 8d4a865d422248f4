//! What comes before the model begins, and what UEs do in it.
//!
//! Emulated UEs register through an emulated gNB, at a CPF that then leaves, so that the others begin with little history. They run once in
//! order, with nothing lost, and the messages from and to the gNB are recorded. The model plays these in every order, and compares what the
//! gNB receives.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_control::UeId;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::TransferSyntax;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::{self, Gnb};
use whimbrel_ran::ue::{self, SessionRequest, Ue, UeCommand};
use whimbrel_ran::{Outbox as RanOutbox, UeId as Camper};
use whimbrel_resilience::cta_replica::PrimaryCta;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{Cta, Input, Outbox};
use whimbrel_sim::{SimSubscribers, gnb_config, ue_config};

use super::nodes::{AtCpf, Constant, GNB, In, Machine, NOW, Octets, Out, PrimaryNode, Root, Terms, settled};

/// Where UEs register before the model begins.
const BEFORE: CpfId = CpfId(9);

/// A message of a UE's gNB: it comes when the gNB has received so many messages for the UE.
#[derive(Clone, Debug)]
pub(crate) struct Uplink {
    pub after: usize,
    pub octets: Octets,
    /// Number of messages that the gNB has received for the UE once this is answered.
    pub answered: usize,
    /// Whether the UE is idle then, and all backups have its checkpoint.
    pub rests: bool,
}

/// The messages of a UE, and those that its gNB receives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub id: Option<UeId>,
    pub uplinks: Vec<Uplink>,
    pub received: Vec<Octets>,
}

/// How the model begins.
pub(crate) struct Beginning {
    pub snapshot: Vec<u8>,
    pub has: BTreeMap<CpfId, u64>,
    pub heard: BTreeMap<CpfId, Vec<In>>,
    pub time: whimbrel_ids::Instant,
    pub parts: Vec<Part>,
}

/// One network in which everything happens in order.
struct Rehearsal<'a> {
    terms: &'a Terms,
    cta: Option<Machine>,
    cpfs: BTreeMap<CpfId, (AtCpf, Vec<In>)>,
    gnb: Gnb,
    ues: Vec<Ue>,
    /// From the gNB, and whether it answers a message.
    up: VecDeque<(Octets, bool)>,
    received: Vec<Octets>,
    time: whimbrel_ids::Instant,
}

impl Rehearsal<'_> {
    fn cta(&mut self, heard: &In) {
        let machine = self.cta.take().expect("it is there");
        let (machine, out) = machine.hear(heard, self.terms);
        self.cta = Some(machine);
        self.carry(out);
    }

    fn active(&mut self) -> &mut PrimaryNode {
        match &mut self.cta {
            Some(Machine::Active(active)) => active,
            _ => unreachable!("it serves"),
        }
    }

    fn carry(&mut self, out: Out) {
        assert_eq!(out.wrong, None);
        for octets in out.ngap {
            self.received.push(octets.clone());
            self.gnb(gnb::Input::Ngap { stream: 1, octets: &octets }, true);
        }
        for (to, taken, octets) in out.down {
            self.cpf(to, In::Down { taken, octets });
        }
    }

    fn cpf(&mut self, to: CpfId, heard: In) {
        let (cpf, all) = self.cpfs.get_mut(&to).expect("it lives");
        let out = cpf.hear(&heard, self.terms.hasty);
        all.push(heard);
        for (to, octets) in out.peers {
            self.cpf(to, In::Peer(octets));
        }
        for (has, octets) in out.up {
            self.cta(&In::Up { from: to, has, octets });
        }
    }

    fn gnb(&mut self, input: gnb::Input<'_>, received: bool) {
        let mut out = RanOutbox::new();
        self.gnb.handle(NOW, input, &mut out);
        for output in out.drain().collect::<Vec<_>>() {
            match output {
                gnb::Output::Ngap { octets, .. } => self.up.push_back((octets.into(), received)),
                gnb::Output::Radio(ue, down) => self.ue(ue, ue::Input::Radio(down), received),
                _ => {}
            }
        }
    }

    fn ue(&mut self, ue: Camper, input: ue::Input, received: bool) {
        let mut out = RanOutbox::new();
        self.ues[ue.0 as usize].handle(NOW, input, &mut out);
        for output in out.drain().collect::<Vec<_>>() {
            if let ue::Output::Radio(up) = output {
                self.gnb(gnb::Input::Radio(ue, up), received);
            }
        }
    }

    /// Answers the gNB's messages one by one, and returns them.
    fn settle(&mut self) -> Vec<Uplink> {
        let mut sent = Vec::new();
        let mut after = 0;
        while let Some((octets, received)) = self.up.pop_front() {
            if received {
                after = self.received.len();
            }
            self.cta(&In::Ngap(octets.clone()));
            let rests = self.active().active.cta().logged().1 == 0;
            sent.push(Uplink { after, octets, answered: self.received.len(), rests });
        }
        sent
    }

    fn tick(&mut self, after: Duration) {
        self.time = self.time + after;
        let at = self.time;
        self.cta(&In::Tick(at));
    }
}

fn nowhere() -> SessionRequest {
    let dnn = Some("nowhere".parse().expect("a DNN"));
    SessionRequest { dnn, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 }
}

/// Registers so many UEs and has so many CPFs run them; then has each UE do its part.
pub(crate) fn rehearse(terms: &Terms, ues: usize, cpfs: u16) -> Beginning {
    let rings = terms.rings([&BEFORE]);
    let mut cta = Cta::of_region(
        terms.config.clone(),
        terms.directory(),
        SimSubscribers::default(),
        Constant,
        (),
        rings,
        NOW,
    );
    cta.set_log_limits(terms.logs);
    let active = PrimaryNode::new(PrimaryCta::new(cta));
    let mut net = Rehearsal {
        terms,
        cta: Some(Machine::Active(active)),
        cpfs: [(BEFORE, (AtCpf::new(BEFORE, terms), Vec::new()))].into(),
        gnb: Gnb::new(gnb_config(1)),
        ues: (0..ues).map(|n| Ue::new(ue_config(n as u32))).collect(),
        up: VecDeque::new(),
        received: Vec::new(),
        time: NOW,
    };
    let mut nothing = Outbox::default();
    let up = Input::AssociationUp { association: GNB, outbound_streams: 16, addresses: Vec::new() };
    net.active().active.handle(NOW, up, &mut nothing);
    net.gnb(gnb::Input::AssociationUp { streams: 16, syntax: TransferSyntax::Per }, false);
    net.settle();
    let mut parts = Vec::new();
    for n in 0..ues {
        let tai = net.gnb.config().tai();
        net.ue(Camper(n as u32), ue::Input::Cell(tai), false);
        net.ue(Camper(n as u32), ue::Input::Command(UeCommand::Register), false);
        net.settle();
        let supi = net.ues[n].config().supi;
        let id = net.active().active.cta().find(supi);
        assert!(id.is_some(), "UE {n} is registered: {:?}", net.ues[n].state());
        parts.push(Part { id, ..Part::default() });
    }
    // The CPFs of the model come, and the one before leaves.
    let members: Vec<CpfId> = (0..cpfs).map(CpfId).collect();
    for &cpf in &members {
        net.cpfs.insert(cpf, (AtCpf::new(cpf, terms), Vec::new()));
    }
    let mut caused = Outbox::default();
    net.active().active.handle(NOW, Input::Rings(terms.rings(&members)), &mut caused);
    assert!(caused.cpfs.is_empty());
    for _ in 0..200 {
        net.tick(Duration::from_millis(1));
    }
    let mut caused = Outbox::default();
    net.active().active.handle(NOW, Input::CpfLost(BEFORE), &mut caused);
    assert!(caused.cpfs.is_empty() && caused.ngap.is_empty(), "it has nothing left: {caused:?}");
    // From here on replicas that lag are looked for as often as the terms say.
    net.tick(Duration::from_secs(6));
    while net.active().active.cta().is_failing_over() {
        net.tick(Duration::from_millis(1));
    }
    let time = net.time;
    let active = net.active();
    for part in &parts {
        let id = part.id.expect("it is registered");
        let cta = active.active.cta();
        let backups = terms.backups.min(members.len() - 1);
        assert!(cta.served_by(id) != Some(BEFORE) && cta.backed_by(id).len() == backups);
    }
    let snapshot = active.active.snapshot().expect("all is at rest").octets().to_vec();
    active.active.continue_without_replica(&mut Outbox::default());
    net.cpfs.remove(&BEFORE);
    let has = net.cpfs.iter().map(|(id, (cpf, _))| (*id, cpf.end.taken())).collect();
    let heard = net.cpfs.iter().map(|(id, (_, heard))| (*id, heard.clone())).collect();
    for (n, part) in parts.iter_mut().enumerate() {
        net.received.clear();
        let ue = Camper(n as u32);
        // A session of an unknown DNN is refused at once, which is a whole procedure; the gNB may release the UE before that is answered;
        // and then the UE comes back.
        net.ue(ue, ue::Input::Command(UeCommand::EstablishSession(nowhere())), false);
        part.uplinks.extend(net.settle());
        let inactive = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
        net.gnb(gnb::Input::Release(ue, inactive), false);
        part.uplinks.extend(net.settle());
        net.ue(ue, ue::Input::Command(UeCommand::ServiceRequest), false);
        part.uplinks.extend(net.settle());
        // Each comes no earlier than the one before it.
        let mut after = 0;
        for uplink in &mut part.uplinks {
            after = uplink.after.max(after);
            uplink.after = after;
        }
        part.received = net.received.clone();
    }
    Beginning { snapshot, has, heard, time, parts }
}

impl Beginning {
    /// The CTA first, then the CPFs in order, of which some come later, then the CTA replica.
    pub(crate) fn roots(&self, terms: &Terms, replicated: bool, joining: u16) -> Vec<Root> {
        let Self { snapshot, has, heard, .. } = self;
        let mut roots = vec![Root::Active { snapshot: snapshot.clone(), has: has.clone(), replicated }];
        roots.extend(heard.iter().map(|(id, heard)| Root::Cpf { id: *id, heard: heard.clone() }));
        let present = heard.len() as u16;
        let joining = (present..present + joining).map(CpfId);
        roots.extend(joining.map(|id| Root::Cpf { id, heard: Vec::new() }));
        if replicated {
            let snapshot = settled(terms, snapshot, has).snapshot().expect("all is at rest");
            roots.push(Root::CtaReplica { snapshot: snapshot.octets().to_vec() });
        }
        roots
    }
}
