//! UE harness: one UE with its shard, driven message by message, for tests of input that no conformant UE sends.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{
    AmfId, AmfUeNgapId, Dnn, FiveQi, Instant, NrCellId, PduSessionId, PlmnId, RanUeNgapId, SNssai, STmsi,
    Seid, Supi, Tac, Tai, Tmsi,
};
use whimbrel_nas::ie::{
    MobileIdentity, NgKsi, PduSessionType, RegistrationKind, RegistrationType, UeSecurityCapability,
};
use whimbrel_nas::mm::{self, RegistrationRequest};
use whimbrel_nas::sm::Pti;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{NrCgi, RrcEstablishmentCause, UserLocationInformation, UserLocationInformationNr};
use whimbrel_ngap::msg::{InitialUeMessage, UplinkNasTransport};
use whimbrel_security::{
    Bearer, CipheringAlgorithm, IntegrityAlgorithm, KAmf, NasCounts, NasSecurityContext, NasSide,
    SecurityHeaderType,
};

use crate::config::{AccessPolicies, Amf, Config, DataNetwork, Limits, NetworkName, Smf, Timers};
use crate::envelope::{AssociationId, Batch, Effect, Envelope, OutputId, Payload, UeId};
use crate::flat::{Checkpoint, Flat, FlatError};
use crate::shard::{RestVec, Shard};
use crate::state::{
    Ambr, Arp, Connection, SessionQos, SessionTypes, SessionUsage, SmContext, SubscribedDnn, SubscribedSlice,
    Subscription, Tunnel, UeAddress, UeContext, UpState,
};

const ASSOCIATION: AssociationId = AssociationId(3);
pub(crate) const RAN_ID: RanUeNgapId = RanUeNgapId(70);

/// The header that messages of a registered UE have.
pub(crate) const CIPHERED: SecurityHeaderType = SecurityHeaderType::IntegrityProtectedAndCiphered;
/// The header of its initial messages.
pub(crate) const INTEGRITY: SecurityHeaderType = SecurityHeaderType::IntegrityProtected;

/// One UE, its machine, and the keys that both share.
pub(crate) struct UeHarness {
    pub(crate) shard: Shard,
    pub(crate) id: UeId,
    pub(crate) keys: NasSecurityContext,
    pub(crate) terms: (u32, u32),
    clock: u64,
    now: Instant,
    connection: u64,
}

pub(crate) fn psi(n: u8) -> PduSessionId {
    PduSessionId::new(n).unwrap()
}

pub(crate) fn supi() -> Supi {
    "999700000000001".parse().unwrap()
}

fn tai() -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(1).unwrap() }
}

pub(crate) fn config() -> Config {
    let network = DataNetwork { ipv4: true, ipv6: true, mtu: 1400, ..DataNetwork::default() };
    Config {
        version: 1,
        amf: Amf {
            name: "amf".into(),
            plmn: PlmnId::TEST,
            amf_id: AmfId::new(2, 1, 0).unwrap(),
            tacs: vec![tai().tac],
            areas: Default::default(),
            slices: vec![SNssai::sst(1)],
            relative_capacity: 255,
            integrity: vec![IntegrityAlgorithm::Nia2],
            ciphering: vec![CipheringAlgorithm::Nea2],
            network_name: NetworkName { full: String::new(), short: String::new() },
            peer_amfs: Vec::new(),
            signs: false,
            prediction: Default::default(),
            gnbs: Vec::new(),
            uses_remote_smf: false,
            ims_vops: false,
            local_time: Default::default(),
            // Assistance information for RRC_INACTIVE follows many procedures; it has tests of its own.
            access: AccessPolicies { rrc_inactive: false, ..AccessPolicies::default() },
        },
        smf: Smf {
            data_networks: BTreeMap::from([("internet".parse().unwrap(), network)]),
            node_id: Ipv4Addr::LOCALHOST.into(),
            upfs: vec![crate::config::Upf::default()],
            set_id: None,
            handover_downlink: Default::default(),
            marking: Default::default(),
            buffering: Default::default(),
            pcf: None,
        },
        overload: Default::default(),
        open: None,
        veil: None,
        udm: Default::default(),
        timers: Timers::default(),
        refusals: BTreeMap::new(),
        limits: Limits::default(),
    }
}

pub(crate) fn subscription() -> Subscription {
    let ambr = Ambr { ul_kbps: 1000, dl_kbps: 1000 };
    let dnn = SubscribedDnn {
        dnn: "internet".parse().unwrap(),
        default: true,
        session_types: SessionTypes::IP,
        ssc_mode: whimbrel_nas::ie::SscMode::One,
        five_qi: FiveQi(9),
        arp: Arp { priority: 8, may_preempt: false, preemptable: true },
        session_ambr: ambr,
        static_ipv4: None,
        static_ipv6: None,
        up_security: None,
        flows: Vec::new(),
        framed_routes: Vec::new(),
    };
    let slice = SubscribedSlice { s_nssai: SNssai::sst(1), default: true, dnns: vec![dnn] };
    Subscription {
        ue_ambr: ambr,
        slices: vec![slice],
        rfsp: None,
        restrictions: Default::default(),
        priority: Default::default(),
    }
}

fn session() -> SmContext {
    SmContext {
        psi: psi(1),
        s_nssai: SNssai::sst(1),
        dnn: "internet".parse::<Dnn>().unwrap(),
        session_type: PduSessionType::Ipv4,
        address: UeAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 2)), ipv6: None, interface_id: [1; 8] },
        qos: SessionQos {
            five_qi: FiveQi(9),
            arp: Arp { priority: 8, may_preempt: false, preemptable: true },
            ambr: Ambr { ul_kbps: 1000, dl_kbps: 1000 },
            flows: Vec::new(),
            marks: Default::default(),
            pending_change: None,
            filters_max: 16,
            reflects: false,
        },
        upf: crate::upf::UpfId(0),
        cp_seid: Seid(1),
        up_seid: Some(Seid(5)),
        n3: Some(Tunnel { teid: whimbrel_ids::Teid(9), address: Ipv4Addr::LOCALHOST.into() }),
        an: Some(Tunnel { teid: whimbrel_ids::Teid(7), address: Ipv4Addr::new(127, 0, 1, 1).into() }.into()),
        forwarding: None,
        up: UpState::Active,
        departing: false,
        awaited: false,
        ssc_mode: whimbrel_nas::ie::SscMode::One,
        until: Instant::FAR_FUTURE,
        always_on: false,
        full_rate_integrity: true,
        pti: Pti::UNASSIGNED,
        usage: SessionUsage::default(),
        emergency: false,
        up_security: None,
        charging: None,
        policy: None,
    }
}

fn keys(side: NasSide, counts: NasCounts) -> NasSecurityContext {
    let (k_amf, bearer) = (KAmf::new([7; 32]), Bearer::NAS_3GPP);
    NasSecurityContext::new(side, bearer, &k_amf, CipheringAlgorithm::Nea2, IntegrityAlgorithm::Nia2, counts)
}

/// A value after it was encoded and decoded.
fn travelled<T: std::fmt::Debug>(
    value: &T,
    to: fn(&T) -> Flat,
    from: fn(&[u8]) -> Result<T, FlatError>,
) -> T {
    let octets = to(value);
    let there = from(octets.octets()).unwrap();
    assert_eq!(to(&there), octets);
    assert_eq!(format!("{there:?}"), format!("{value:?}"));
    there
}

impl UeHarness {
    /// A UE without a context.
    pub(crate) fn unknown() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        // UEs rest as soon and as often as they can: no test may notice.
        let mut shard = Shard::new(Arc::new(config));
        shard.set_rest_store(Box::new(RestVec::default()), Duration::ZERO);
        Self {
            shard,
            id: UeId { slot: 4, generation: 1 },
            keys: keys(NasSide::Ue, NasCounts::default()),
            terms: (1, 1),
            clock: 0,
            now: Instant(1_800_000_000_000_000),
            connection: 0,
        }
    }

    /// A registered, connected UE with one session.
    pub(crate) fn registered() -> Self {
        Self::registered_at(NasCounts { uplink_next: 8, downlink_next: 6 })
    }

    /// The same, with these COUNTs.
    pub(crate) fn registered_at(counts: NasCounts) -> Self {
        Self::unknown().and_registered(counts)
    }

    /// A registered, connected UE with one session, under this configuration.
    pub(crate) fn registered_with(config: Config) -> Self {
        Self::with(config).and_registered(NasCounts { uplink_next: 8, downlink_next: 6 })
    }

    fn and_registered(self, counts: NasCounts) -> Self {
        let mut harness = self;
        harness.keys = keys(NasSide::Ue, counts);
        let mut ue = Box::new(UeContext::new(harness.id));
        let capability = UeSecurityCapability::with_eps(0xf0, 0x70, 0xf0, 0x70);
        ue.amf.supi = Some(supi());
        ue.amf.registered = true;
        ue.amf.tmsi = Some(Tmsi(0x1234));
        ue.amf.security.current = Some(Box::new(keys(NasSide::Network, counts)));
        ue.amf.ue_security_capability = Some(capability);
        ue.amf.security.k_amf = Some(KAmf::new([7; 32]));
        ue.amf.security.ng_ksi = NgKsi::native(0);
        ue.amf.location.tai = Some(tai());
        ue.amf.location.registration_area = [tai()].into();
        ue.amf.slices.allowed = vec![SNssai::sst(1)];
        ue.amf.subscription = Some(Arc::new(subscription()));
        ue.amf.connection = Some(Box::new(Connection {
            association: ASSOCIATION,
            amf_ue_ngap_id: AmfUeNgapId::new(4).unwrap(),
            ran_ue_ngap_id: RAN_ID,
            context_set_up: true,
            context_pending: false,
            context_requested: true,
            ambr_sent: None,
            follow_on: true,
            secured: true,
            releasing: false,
            establishment_cause: whimbrel_ngap::ie::RrcEstablishmentCause::MoSignalling,
            rrc_inactive: false,
            pending_setups: Vec::new(),
        }));
        ue.sessions.insert(psi(1), Box::new(session()));
        harness.shard.restore(ue);
        harness
    }

    /// Our name of the UE's connection.
    pub(crate) fn connection(&self) -> AmfUeNgapId {
        AmfUeNgapId::new(4 + (self.connection << 24)).unwrap()
    }

    /// The gNB's association.
    pub(crate) fn association(&self) -> AssociationId {
        ASSOCIATION
    }

    /// Answers the N4 requests of the last batch, and of the batches that follow, with acceptance. Returns all batches, the
    /// given one first.
    pub(crate) fn settle(&mut self, batch: Batch) -> Vec<Batch> {
        let mut all = vec![(self.clock, batch)];
        let mut next = 0;
        while let Some((clock, batch)) = all.get(next) {
            let requests: Vec<(OutputId, Vec<u8>)> = (0u16..)
                .zip(&batch.outputs)
                .filter_map(|(index, o)| match &o.effect {
                    Effect::N4 { octets, .. } => Some((OutputId { clock: *clock, index }, accepted(octets)?)),
                    _ => None,
                })
                .collect();
            for (to, octets) in requests {
                let batch = self.input(Payload::PfcpAnswer {
                    to,
                    upf: crate::upf::UpfId(0),
                    octets: Some(octets.into()),
                });
                all.push((self.clock, batch));
            }
            next += 1;
        }
        all.into_iter().map(|(_, batch)| batch).collect()
    }

    /// The UE takes the keys of its last authentication into use.
    pub(crate) fn renew(&mut self, k_amf: &KAmf) {
        let (bearer, counts) = (Bearer::NAS_3GPP, NasCounts::default());
        let (c, i) = (CipheringAlgorithm::Nea2, IntegrityAlgorithm::Nia2);
        self.keys = NasSecurityContext::new(NasSide::Ue, bearer, k_amf, c, i, counts);
    }

    pub(crate) fn context(&self) -> Option<&UeContext> {
        self.shard.context(self.id)
    }

    /// Runs one input. Input, batch and, if the UE is idle then, checkpoint are encoded and decoded.
    pub(crate) fn input(&mut self, payload: Payload) -> Batch {
        self.clock += 1;
        self.now = Instant(self.now.0 + 1000);
        let envelope = Envelope {
            code_version: 1,
            ue: self.id,
            cta_term: self.terms.0,
            owner_term: self.terms.1,
            clock: self.clock,
            time: self.now,
            seed: [self.clock as u8; 16],
            tmsi: Tmsi(0x4000 + self.clock as u32),
            config_version: 1,
            upfs: crate::upf::UpfStates::ALL_USABLE,
            payload,
        };
        let batch = self.shard.handle(&travelled(&envelope, Envelope::to_flat, Envelope::from_flat));
        if let Some(rests) = self.shard.checkpoint(self.id) {
            let octets = Checkpoint::of(&rests).unwrap();
            let ue = Checkpoint::from_octets(octets.octets()).unwrap().context().unwrap();
            assert_eq!(Checkpoint::of(&ue), Some(octets));
            assert_eq!(format!("{ue:?}"), format!("{rests:?}"));
            self.shard.restore(ue);
        }
        travelled(&batch, Batch::to_flat, Batch::from_flat)
    }

    /// Clock of the last input.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// The UDM answers the request that the last input led to.
    pub(crate) fn udm(&mut self, batch: &Batch, answer: crate::udm::UdmAnswer) -> Batch {
        let index = batch.outputs.iter().position(|o| matches!(o.effect, Effect::Udm(_))).unwrap();
        let to = OutputId { clock: self.clock, index: index as u16 };
        self.input(Payload::Udm { to, answer })
    }

    /// Advances to the UE's next deadline.
    pub(crate) fn expire(&mut self, batch: &Batch) -> Batch {
        self.now = batch.next_deadline.unwrap();
        self.input(Payload::Tick)
    }

    pub(crate) fn ngap(&mut self, message: impl Into<Message>) -> Batch {
        let mut octets = Vec::new();
        message.into().encode(&mut octets);
        self.input(Payload::Ngap { association: ASSOCIATION, octets: octets.into() })
    }

    /// A NAS message on the connection, protected under `header`.
    pub(crate) fn nas(&mut self, header: SecurityHeaderType, message: impl Into<mm::Message>) -> Batch {
        let pdu = self.protect(header, message);
        let connection = AmfUeNgapId::new(4 + (self.connection << 24)).unwrap();
        self.ngap(UplinkNasTransport::new(connection, RAN_ID, pdu))
    }

    /// A NAS message on the connection, without protection.
    pub(crate) fn nas_plain(&mut self, message: impl Into<mm::Message>) -> Batch {
        let connection = AmfUeNgapId::new(4 + (self.connection << 24)).unwrap();
        self.ngap(UplinkNasTransport::new(connection, RAN_ID, message.into().to_octets()))
    }

    pub(crate) fn protect(&mut self, header: SecurityHeaderType, message: impl Into<mm::Message>) -> Vec<u8> {
        let (mut plain, mut pdu) = (Vec::new(), Vec::new());
        message.into().encode(&mut plain);
        self.keys.protect(header, &plain, &mut pdu).unwrap();
        pdu
    }

    /// The first message of a connection, given as octets.
    pub(crate) fn first(&mut self, pdu: Vec<u8>, s_tmsi: Option<Tmsi>) -> Batch {
        self.connection += 1;
        let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(1).unwrap());
        let location =
            UserLocationInformation::UserLocationInformationNr(UserLocationInformationNr::new(cell, tai()));
        let mut m = InitialUeMessage::new(RAN_ID, pdu, location, RrcEstablishmentCause::MoSignalling);
        m.five_g_s_tmsi = s_tmsi.map(|tmsi| STmsi { set: 1, pointer: 0, tmsi });
        m.ue_context_request = Some(whimbrel_ngap::ie::UeContextRequest::Requested);
        let mut octets = Vec::new();
        Message::from(m).encode(&mut octets);
        self.input(Payload::InitialUeMessage {
            association: ASSOCIATION,
            amf_ue_ngap_id: AmfUeNgapId::new(4 + (self.connection << 24)).unwrap(),
            octets: octets.into(),
            addressed: true,
        })
    }

    /// A message without protection, as the first of a connection.
    pub(crate) fn first_plain(&mut self, message: impl Into<mm::Message>) -> Batch {
        let mut plain = Vec::new();
        message.into().encode(&mut plain);
        self.first(plain, None)
    }

    /// The NAS messages in a batch, read with the UE's keys.
    pub(crate) fn downlink(&mut self, batch: &Batch) -> Vec<mm::Message> {
        n2(batch).into_iter().filter_map(|m| self.open(pdu_of(m)?)).collect()
    }

    pub(crate) fn open(&mut self, pdu: Vec<u8>) -> Option<mm::Message> {
        let mut plain = Vec::new();
        if self.keys.unprotect(&pdu, &mut plain).is_err() {
            plain = pdu;
        }
        mm::Message::decode(&plain).ok()
    }
}

/// The UPF's acceptance of a request.
fn accepted(request: &[u8]) -> Option<Vec<u8>> {
    let frame = whimbrel_pfcp::Frame::parse(request).unwrap();
    let cause = whimbrel_pfcp::ie::Cause::RequestAccepted;
    let answer: whimbrel_pfcp::Message = match whimbrel_pfcp::Message::parse(&frame).unwrap() {
        whimbrel_pfcp::Message::SessionModificationRequest(_) => {
            whimbrel_pfcp::msg::SessionModificationResponse::new(cause).into()
        }
        whimbrel_pfcp::Message::SessionDeletionRequest(_) => {
            whimbrel_pfcp::msg::SessionDeletionResponse::new(cause).into()
        }
        _ => return None,
    };
    Some(answer.to_octets(Some(Seid(1)), 0))
}

/// The N2 messages in a batch.
pub(crate) fn n2(batch: &Batch) -> Vec<Message> {
    let octets = batch.outputs.iter().filter_map(|o| match &o.effect {
        Effect::N2 { octets, .. } => Some(octets),
        _ => None,
    });
    octets.map(|o| Message::decode(o).unwrap()).collect()
}

pub(crate) fn pdu_of(message: Message) -> Option<Vec<u8>> {
    match message {
        Message::DownlinkNasTransport(m) => Some(m.nas_pdu),
        Message::InitialContextSetupRequest(m) => m.nas_pdu,
        Message::PduSessionResourceReleaseCommand(m) => m.nas_pdu,
        Message::PduSessionResourceModifyRequest(m) => {
            m.pdu_session_resource_modify_list_mod_req.into_iter().next()?.nas_pdu
        }
        _ => None,
    }
}

/// A registration request of the UE.
pub(crate) fn registration_request(kind: RegistrationKind) -> RegistrationRequest {
    let guti = whimbrel_ids::Guti { guami: config().amf.guami(), tmsi: Tmsi(0x1234) };
    let registration_type = RegistrationType { follow_on_request: true, kind };
    let ksi = NgKsi::native(0).unwrap();
    let mut m = RegistrationRequest::new(registration_type, ksi, MobileIdentity::Guti(guti));
    m.ue_security_capability = Some(UeSecurityCapability::with_eps(0xf0, 0x70, 0xf0, 0x70));
    m
}
