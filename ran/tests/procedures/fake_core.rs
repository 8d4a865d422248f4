//! A core of one UE for the tests of the emulated RAN: NGAP and NAS by the wire crates, the network side of
//! `security`, and nothing of the real core. It is as simple as the procedures allow and does what its knobs say.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::*;
use whimbrel_nas::ie::{self, *};
use whimbrel_nas::mm::{self, Message as Mm, *};
use whimbrel_nas::sm::{self, Body};
use whimbrel_nas::{Envelope, NasErrorKind};
use whimbrel_ngap as ngap;
use whimbrel_ngap::{Message, TransferSyntax};
use whimbrel_ran::gnb::{self, Gnb, GnbConfig, XnMessage};
use whimbrel_ran::ue::{self, Profile, SuciSource, Ue, UeConfig};
use whimbrel_ran::{DownlinkMessage, Outbox, UeId, UplinkMessage};
use whimbrel_security::{
    Abba, AkaFunctions, AuthenticationManagementField, AuthenticationVector, Bearer, CipheringAlgorithm,
    Direction, IntegrityAlgorithm, K, KAmf, Milenage, NasCounts, NasSecurityContext, NasSide, Opc, Rand,
    SecurityHeaderType, ServingNetworkName, Sqn, UsimSqn,
};

pub const NOW: Instant = Instant(1_800_000_000_000_000);
pub const UE: UeId = UeId(0);
pub const SLICE: SNssai = SNssai::sst(1);

pub fn tai() -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(1).unwrap() }
}

pub fn guami() -> Guami {
    Guami { plmn: PlmnId::TEST, amf_id: AmfId::new(1, 2, 3).unwrap() }
}

/// What the core does otherwise than it should, or than it does by default.
#[derive(Default)]
pub struct Knobs {
    pub reject_registration: Option<MmCause>,
    pub reject_service: Option<MmCause>,
    pub t3346: Option<Duration>,
    /// The next challenges have a wrong MAC.
    pub forged_challenges: u32,
    pub no_separation_bit: bool,
    /// SEQ of the next challenge.
    pub stale_sqn: bool,
    pub reject_authentication: bool,
    /// Do not replay the UE's security capabilities but these.
    pub altered_capabilities: Option<UeSecurityCapability>,
    pub wrong_k_gnb: bool,
    pub without_ue_ambr: bool,
    pub ciphering: Option<ie::CipheringAlgorithm>,
    pub integrity: Option<ie::IntegrityAlgorithm>,
    pub silent: bool,
    /// The sessions' next answer is this reject.
    pub reject_session: Option<SmCause>,
    /// The sessions' request is not forwarded.
    pub not_forwarded: Option<MmCause>,
    pub keep_connection: bool,
    /// The answer to modification requests; without it there is none.
    pub reject_modification: Option<SmCause>,
    /// The next hops do not belong to their counts.
    pub wrong_next_hop: bool,
    /// The path of these sessions is not switched, nor are they admitted by the core in a handover.
    pub release_in_handover: Vec<PduSessionId>,
    /// PATH SWITCH REQUEST is refused.
    pub refuse_path_switch: bool,
    /// Containers of gNBs are spoilt.
    pub spoil_containers: bool,
    /// The UE's capabilities are taken from PATH SWITCH REQUEST as they come.
    pub believe_capabilities: bool,
    /// Forwarding goes through the UPF.
    pub indirect: bool,
}

pub struct Context {
    nas: NasSecurityContext,
    pub k_amf: KAmf,
    ng_ksi: NgKsi,
}

pub struct Core {
    pub knobs: Knobs,
    milenage: AkaFunctions,
    supi: Supi,
    seq: u64,
    rand: u8,
    /// Which UE of a network of many.
    pub index: u32,
    pub amf_ue_ngap_id: AmfUeNgapId,
    pub ran_ue_ngap_id: RanUeNgapId,
    pub stream: u16,
    vector: Option<AuthenticationVector>,
    ng_ksi: u8,
    pub context: Option<Context>,
    /// The gNB that has the UE.
    pub serving: usize,
    pub mobility: crate::fake_mobility::Mobility,
    capability: Option<UeSecurityCapability>,
    /// COUNT from which the core derives K_gNB.
    count: u32,
    pub tmsi: u32,
    pub sessions: PduSessionSet,
    pub radio_capability: Option<Vec<u8>>,
    /// The NAS messages that came, by their types, and the whole initial messages.
    pub uplink: Vec<MessageType>,
    pub initial: Vec<RegistrationRequest>,
    pub auts: u32,
    pub ngap: Vec<&'static str>,
    pub imeisv: Option<MobileIdentity>,
    pub last_service: Option<ServiceRequest>,
    pub session_request: Option<(sm::EstablishmentRequest, mm::UlNasTransport)>,
    /// What serves veiled UEs.
    pub veil: Option<Box<crate::veil::Serving>>,
}

pub type Out = Vec<(u16, Message)>;

impl Core {
    pub fn new(supi: Supi, milenage: impl Into<AkaFunctions>, index: u32) -> Self {
        Self {
            knobs: Knobs::default(),
            milenage: milenage.into(),
            supi,
            seq: 0,
            rand: 0,
            index,
            amf_ue_ngap_id: AmfUeNgapId::new(u64::from(index) << 20).unwrap(),
            ran_ue_ngap_id: RanUeNgapId(0),
            stream: 0,
            vector: None,
            ng_ksi: 0,
            context: None,
            serving: 0,
            mobility: Default::default(),
            capability: None,
            count: 0,
            tmsi: index << 12,
            sessions: PduSessionSet::default(),
            radio_capability: None,
            uplink: Vec::new(),
            initial: Vec::new(),
            auts: 0,
            ngap: Vec::new(),
            imeisv: None,
            last_service: None,
            session_request: None,
            veil: None,
        }
    }

    pub fn guti(&self) -> Guti {
        Guti { guami: guami(), tmsi: Tmsi(self.tmsi) }
    }

    /// Loses the UE's keys, as a restart would.
    pub fn forget(&mut self) {
        self.context = None;
        self.sessions = PduSessionSet::default();
    }

    pub fn handle(&mut self, stream: u16, message: Message) -> Out {
        self.ngap.push(message.name());
        let mut out = Out::new();
        if self.knobs.silent {
            return out;
        }
        match message {
            Message::NgSetupRequest(_) => {
                let plmns = vec![ngap::PlmnSupportItem::new(PlmnId::TEST, vec![SLICE])];
                let guamis = vec![ngap::ServedGuamiItem::new(guami())];
                out.push((0, ngap::NgSetupResponse::new("fake".into(), guamis, 255, plmns).into()));
            }
            Message::InitialUeMessage(m) => {
                assert_eq!(m.ue_context_request, Some(ngap::UeContextRequest::Requested));
                self.amf_ue_ngap_id = AmfUeNgapId::new(self.amf_ue_ngap_id.value() + 1).unwrap();
                self.ran_ue_ngap_id = m.ran_ue_ngap_id;
                self.stream = stream;
                assert_ne!(stream, 0);
                self.nas(&m.nas_pdu, &mut out);
            }
            Message::UplinkNasTransport(m) => self.nas(&m.nas_pdu, &mut out),
            Message::UeRadioCapabilityInfoIndication(m) => {
                self.radio_capability = Some(m.ue_radio_capability)
            }
            Message::UeContextReleaseRequest(m) => {
                assert_eq!(m.amf_ue_ngap_id, self.amf_ue_ngap_id);
                self.release(&mut out);
            }
            _ => {}
        }
        out
    }

    fn release(&mut self, out: &mut Out) {
        let pair = ngap::UeNgapIdPair::new(self.amf_ue_ngap_id, self.ran_ue_ngap_id);
        let cause = ngap::Cause::Nas(ngap::CauseNas::NormalRelease);
        out.push((
            self.stream,
            ngap::UeContextReleaseCommand::new(ngap::UeNgapIds::UeNgapIdPair(pair), cause).into(),
        ));
    }

    fn nas(&mut self, octets: &[u8], out: &mut Out) {
        let (plain, protected) = match Envelope::parse(octets).unwrap() {
            Envelope::PlainMm(plain) => (plain.to_vec(), false),
            Envelope::Protected(envelope) => {
                let mut plain = Vec::new();
                let taken = self.context.as_mut().and_then(|c| c.nas.unprotect(octets, &mut plain).ok());
                match taken {
                    Some(taken) => {
                        self.count = taken.count.value();
                        (plain, true)
                    }
                    // §4.4.4.3: what cannot be verified is read if it is in clear.
                    None => (envelope.payload.to_vec(), false),
                }
            }
            Envelope::PlainSm(_) => panic!("bare 5GSM"),
        };
        let message = match Mm::decode(&plain) {
            Ok(message) => message,
            Err(e) if !protected => {
                assert!(matches!(e.kind, NasErrorKind::ProtocolDiscriminator(_)), "{e}");
                return;
            }
            Err(e) => panic!("{e}"),
        };
        self.uplink.push(message.message_type());
        self.mm(message, protected, out);
    }

    fn mm(&mut self, message: Mm, protected: bool, out: &mut Out) {
        match message {
            Mm::RegistrationRequest(m) => self.registration(m, protected, out),
            Mm::AuthenticationResponse(m) if self.veil.is_some() => {
                match self.veil.as_mut().unwrap().respond(m.eap_message.as_ref().unwrap()) {
                    Some(k_amf) => self.secure_with(k_amf, EapMessage::new(vec![3, 7, 0, 4]), out),
                    None => {
                        self.downlink_plain(AuthenticationReject::new(), out);
                        self.release(out);
                    }
                }
            }
            Mm::AuthenticationResponse(m) => {
                let vector = self.vector.clone().unwrap();
                let res_star = whimbrel_security::ResStar::new(m.res_star.unwrap().0);
                if !vector.res_star_matches(&res_star) || self.knobs.reject_authentication {
                    self.downlink_plain(AuthenticationReject::new(), out);
                    return self.release(out);
                }
                self.secure(&vector, out);
            }
            Mm::AuthenticationFailure(m) => match m.cause {
                MmCause::SynchFailure => {
                    self.auts += 1;
                    let auts = whimbrel_security::Auts(m.auts.unwrap().0);
                    let vector = self.vector.clone().unwrap();
                    let sqn =
                        whimbrel_security::aka::verify_auts(&self.milenage, &vector.rand, &auts).unwrap();
                    self.seq = sqn.seq();
                    self.challenge(out);
                }
                MmCause::NgKsiAlreadyInUse => self.challenge(out),
                _ if self.knobs.forged_challenges > 0 => self.challenge(out),
                _ => {
                    self.downlink_plain(AuthenticationReject::new(), out);
                    self.release(out);
                }
            },
            Mm::SecurityModeComplete(m) => {
                assert!(protected);
                self.imeisv = m.imeisv;
                if let Some(whole) = m.nas_message_container {
                    let Ok(Mm::RegistrationRequest(whole)) = Mm::decode(&whole) else {
                        panic!("not the request")
                    };
                    self.initial.push(whole);
                }
                self.accept(out);
            }
            Mm::SecurityModeReject(m) => {
                self.downlink_plain(RegistrationReject::new(m.cause), out);
                self.release(out);
            }
            Mm::RegistrationComplete(_) if !self.knobs.keep_connection => self.release(out),
            Mm::IdentityResponse(_) => self.challenge(out),
            Mm::ServiceRequest(m) => self.service(m, protected, out),
            Mm::DeregistrationRequestUeOriginating(m) => {
                if !m.deregistration_type.switch_off {
                    self.downlink(DeregistrationAcceptUeOriginating::new(), out);
                }
                self.sessions = PduSessionSet::default();
                self.release(out);
            }
            Mm::DeregistrationAcceptUeTerminated(_) => self.release(out),
            Mm::UlNasTransport(m) => self.session(m, out),
            _ => {}
        }
    }

    fn registration(&mut self, mut m: RegistrationRequest, protected: bool, out: &mut Out) {
        if let Some(cause) = self.knobs.reject_registration {
            let mut reject = RegistrationReject::new(cause);
            reject.t3346 = self.knobs.t3346.map(GprsTimer::from_duration);
            if protected {
                self.downlink(reject, out)
            } else {
                self.downlink_plain(reject, out)
            }
            return self.release(out);
        }
        self.capability = m.ue_security_capability.or(self.capability);
        if !protected && let (Some(veil), MobileIdentity::Suci(suci)) = (&mut self.veil, &m.mobile_identity) {
            let abba = ie::Abba::new([0, 0]).unwrap();
            self.ng_ksi = (self.ng_ksi + 1) % 7;
            let mut request = AuthenticationRequest::new(NgKsi::native(self.ng_ksi).unwrap(), abba);
            request.eap_message = Some(veil.challenge(suci));
            return self.downlink_plain(request, out);
        }
        if !protected {
            return self.challenge(out);
        }
        if let Some(container) = m.nas_message_container.take() {
            let mut whole = container.to_vec();
            let count = whimbrel_security::NasCount::new(self.count).unwrap();
            self.context.as_mut().unwrap().nas.apply_to_container(Direction::Uplink, count, &mut whole);
            let Ok(Mm::RegistrationRequest(whole)) = Mm::decode(&whole) else { panic!("container") };
            m = whole;
        }
        self.initial.push(m);
        self.accept(out);
    }

    pub fn challenge(&mut self, out: &mut Out) {
        self.rand += 1;
        if !self.knobs.stale_sqn {
            self.seq += 1;
        }
        self.knobs.stale_sqn = false;
        self.ng_ksi = (self.ng_ksi + 1) % 7;
        let amf = match self.knobs.no_separation_bit {
            true => AuthenticationManagementField([0, 0]),
            false => AuthenticationManagementField::FIVE_G,
        };
        let name = ServingNetworkName::new(PlmnId::TEST);
        let sqn = Sqn::new(self.seq, 1);
        let vector = AuthenticationVector::generate(&self.milenage, Rand([self.rand; 16]), sqn, amf, &name);
        let mut autn = vector.autn.0;
        if self.knobs.forged_challenges > 0 {
            self.knobs.forged_challenges -= 1;
            autn[15] ^= 1;
        }
        let abba = ie::Abba::new([0, 0]).unwrap();
        let mut m = AuthenticationRequest::new(NgKsi::native(self.ng_ksi).unwrap(), abba);
        m.rand = Some(ie::Rand(vector.rand.0));
        m.autn = Some(ie::Autn(autn));
        self.vector = Some(vector);
        self.downlink_plain(m, out);
    }

    fn secure(&mut self, vector: &AuthenticationVector, out: &mut Out) {
        let k_amf = vector.k_seaf.k_amf(self.supi, Abba::RELEASE_15);
        self.secure_with(k_amf, None, out);
    }

    fn secure_with(&mut self, k_amf: KAmf, eap: Option<EapMessage>, out: &mut Out) {
        let ciphering = self.knobs.ciphering.unwrap_or(ie::CipheringAlgorithm::Nea2);
        let integrity = self.knobs.integrity.unwrap_or(ie::IntegrityAlgorithm::Nia2);
        let nas = NasSecurityContext::new(
            NasSide::Network,
            Bearer::NAS_3GPP,
            &k_amf,
            CipheringAlgorithm::from_identity(ciphering.value()).unwrap(),
            IntegrityAlgorithm::from_identity(integrity.value()).unwrap(),
            NasCounts::default(),
        );
        let ng_ksi = NgKsi::native(self.ng_ksi).unwrap();
        self.context = Some(Context { nas, k_amf, ng_ksi });
        let capability = self.knobs.altered_capabilities.or(self.capability).unwrap();
        let algorithms = SecurityAlgorithms { ciphering, integrity };
        let mut m = SecurityModeCommand::new(algorithms, ng_ksi, capability);
        m.eap_message = eap;
        m.imeisv_request = Some(ImeisvRequest { requested: true });
        m.additional_security =
            Some(AdditionalSecurityInformation::default().with_retransmission_requested(true));
        let nas = self.protect(m, SecurityHeaderType::IntegrityProtectedWithNewContext);
        self.transport(nas, out);
    }

    fn accept(&mut self, out: &mut Out) {
        self.tmsi += 1;
        let mut m = RegistrationAccept::new(RegistrationResult::over(Accesses::ThreeGpp));
        m.guti = Some(MobileIdentity::Guti(self.guti()));
        m.tai_list = Some(TaiList::one(tai()));
        m.allowed_nssai = Some([SLICE].into_iter().collect());
        m.t3512 = Some(GprsTimer3::from_duration(Duration::from_secs(3600)));
        m.pdu_session_status = Some(self.sessions);
        let nas = self.protect(m, SecurityHeaderType::IntegrityProtectedAndCiphered);
        self.context_setup(nas, PduSessionSet::default(), out);
    }

    fn context_setup(&mut self, nas: Vec<u8>, sessions: PduSessionSet, out: &mut Out) {
        let k_amf = &self.context.as_ref().unwrap().k_amf;
        let count = whimbrel_security::NasCount::new(self.count + u32::from(self.knobs.wrong_k_gnb)).unwrap();
        let k_gnb = k_amf.k_gnb(count);
        self.mobility.begin(k_amf, &k_gnb);
        let key = ngap::SecurityKey(*k_gnb.octets());
        let capabilities = capabilities();
        let (amf, ran) = (self.amf_ue_ngap_id, self.ran_ue_ngap_id);
        let mut m = ngap::InitialContextSetupRequest::new(amf, ran, guami(), vec![SLICE], capabilities, key);
        m.nas_pdu = Some(nas);
        m.ue_radio_capability = self.radio_capability.clone();
        if !sessions.is_empty() && !self.knobs.without_ue_ambr {
            m.ue_aggregate_maximum_bit_rate =
                Some(ngap::UeAggregateMaximumBitRate::new(1_000_000, 1_000_000));
        }
        let item = |id| ngap::PduSessionResourceSetupItemCxtReq::new(id, SLICE, transfer(self.index));
        m.pdu_session_resource_setup_list_cxt_req = sessions.iter().map(item).collect();
        out.push((self.stream, m.into()));
    }

    fn service(&mut self, m: ServiceRequest, protected: bool, out: &mut Out) {
        if let Some(cause) =
            self.knobs.reject_service.or((!protected).then_some(MmCause::UeIdentityCannotBeDerived))
        {
            let mut reject = ServiceReject::new(cause);
            reject.t3346 = self.knobs.t3346.map(GprsTimer::from_duration);
            if protected {
                self.downlink(reject, out)
            } else {
                self.downlink_plain(reject, out)
            }
            return self.release(out);
        }
        let mut whole = m.nas_message_container.clone().unwrap().to_vec();
        let count = whimbrel_security::NasCount::new(self.count).unwrap();
        self.context.as_mut().unwrap().nas.apply_to_container(Direction::Uplink, count, &mut whole);
        let Ok(Mm::ServiceRequest(whole)) = Mm::decode(&whole) else { panic!("container") };
        let requested = whole.uplink_data_status.unwrap_or_default();
        self.last_service = Some(whole);
        let mut accept = ServiceAccept::new();
        accept.pdu_session_status = Some(self.sessions);
        let nas = self.protect(accept, SecurityHeaderType::IntegrityProtectedAndCiphered);
        self.context_setup(nas, requested, out);
    }

    fn session(&mut self, m: mm::UlNasTransport, out: &mut Out) {
        let message = sm::Message::decode(&m.payload_container).unwrap();
        let (id, pti) = (message.pdu_session_id.unwrap(), message.pti);
        match message.body {
            Body::EstablishmentRequest(request) => {
                let asked = request.pdu_session_type.unwrap();
                self.session_request = Some((request, m.clone()));
                if let Some(cause) = self.knobs.not_forwarded {
                    let mut back = mm::DlNasTransport::new(m.payload_container_type, m.payload_container);
                    back.pdu_session_id = Some(id);
                    back.cause = Some(cause);
                    return self.downlink(back, out);
                }
                if let Some(cause) = self.knobs.reject_session {
                    let reject = sm::Message::new(id, pti, sm::EstablishmentReject::new(cause));
                    return self.downlink_session(&reject, out);
                }
                self.sessions.insert(id);
                let accept = sm::Message::new(id, pti, establishment_accept(self.index, asked));
                let nas = self.wrap(&accept);
                let mut item = ngap::PduSessionResourceSetupItemSuReq::new(id, SLICE, transfer(self.index));
                item.pdu_session_nas_pdu = Some(nas);
                let (amf, ran) = (self.amf_ue_ngap_id, self.ran_ue_ngap_id);
                let mut m = ngap::PduSessionResourceSetupRequest::new(amf, ran, vec![item]);
                if !self.knobs.without_ue_ambr {
                    m.ue_aggregate_maximum_bit_rate =
                        Some(ngap::UeAggregateMaximumBitRate::new(1_000_000, 1_000_000));
                }
                out.push((self.stream, m.into()));
            }
            Body::ReleaseRequest(_) => {
                let command =
                    sm::Message::new(id, pti, sm::ReleaseCommand::new(SmCause::RegularDeactivation));
                let nas = self.wrap(&command);
                let cause = ngap::Cause::Nas(ngap::CauseNas::NormalRelease);
                let transfer = ngap::PduSessionResourceReleaseCommandTransfer::new(cause).to_vec();
                let (amf, ran) = (self.amf_ue_ngap_id, self.ran_ue_ngap_id);
                let item = ngap::PduSessionResourceItem::new(id, transfer);
                let mut m = ngap::PduSessionResourceReleaseCommand::new(amf, ran, vec![item]);
                m.nas_pdu = Some(nas);
                out.push((self.stream, m.into()));
            }
            Body::ModificationRequest(_) => {
                if let Some(cause) = self.knobs.reject_modification {
                    let reject = sm::Message::new(id, pti, sm::ModificationReject::new(cause));
                    self.downlink_session(&reject, out);
                }
            }
            Body::ReleaseComplete(_) => self.sessions.remove(id),
            _ => {}
        }
    }

    pub fn deregister(&mut self, again: bool, out: &mut Out) {
        let accesses = Accesses::ThreeGpp;
        let kind = DeregistrationType { switch_off: false, re_registration_required: again, accesses };
        self.downlink(DeregistrationRequestUeTerminated::new(kind), out);
    }

    pub fn update_configuration(&mut self, out: &mut Out) {
        self.tmsi += 1;
        let mut m = ConfigurationUpdateCommand::new();
        m.guti = Some(MobileIdentity::Guti(self.guti()));
        m.update_indication =
            Some(ConfigurationUpdateIndication { acknowledgement_requested: true, ..Default::default() });
        self.downlink(m, out);
    }

    pub fn page(&self, out: &mut Out) {
        let mut m = ngap::Paging::new(ngap::UePagingIdentity::FiveGSTmsi(self.guti().s_tmsi()));
        m.tai_list_for_paging = vec![tai()];
        out.push((0, m.into()));
    }

    pub fn identity_request_plain(&mut self, identity_type: IdentityType, out: &mut Out) {
        self.downlink_plain(IdentityRequest::new(identity_type), out);
    }

    fn downlink_session(&mut self, message: &sm::Message, out: &mut Out) {
        let nas = self.wrap(message);
        self.transport(nas, out);
    }

    fn wrap(&mut self, message: &sm::Message) -> Vec<u8> {
        let container = PayloadContainer::new(message.to_octets()).unwrap();
        let mut m = mm::DlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
        m.pdu_session_id = message.pdu_session_id;
        self.protect(m, SecurityHeaderType::IntegrityProtectedAndCiphered)
    }

    fn downlink(&mut self, message: impl Into<Mm>, out: &mut Out) {
        let nas = self.protect(message, SecurityHeaderType::IntegrityProtectedAndCiphered);
        self.transport(nas, out);
    }

    fn downlink_plain(&mut self, message: impl Into<Mm>, out: &mut Out) {
        self.transport(message.into().to_octets(), out);
    }

    fn protect(&mut self, message: impl Into<Mm>, header: SecurityHeaderType) -> Vec<u8> {
        let mut nas = Vec::new();
        let context = self.context.as_mut().unwrap();
        context.nas.protect(header, &message.into().to_octets(), &mut nas).unwrap();
        let _ = context.ng_ksi;
        nas
    }

    fn transport(&mut self, nas: Vec<u8>, out: &mut Out) {
        let m = ngap::DownlinkNasTransport::new(self.amf_ue_ngap_id, self.ran_ue_ngap_id, nas);
        out.push((self.stream, m.into()));
    }
}

pub fn capabilities() -> ngap::UeSecurityCapabilities {
    ngap::UeSecurityCapabilities::new(0xe000, 0xe000, 0, 0)
}

/// The UPF of a session: 127.0.0.9, TEIDs from 0x55 on.
pub fn transfer(index: u32) -> Vec<u8> {
    let tunnel = ngap::GtpTunnel::new(Ipv4Addr::new(127, 0, 0, 9).into(), Teid(0x55 + index));
    let five_qi = ngap::QosCharacteristics::NonDynamic5qi(ngap::NonDynamic5qiDescriptor::new(FiveQi(9)));
    let arp = ngap::AllocationAndRetentionPriority::new(
        8,
        ngap::PreEmptionCapability::ShallNotTriggerPreEmption,
        ngap::PreEmptionVulnerability::NotPreEmptable,
    );
    let parameters = ngap::QosFlowLevelQosParameters::new(five_qi, arp);
    let flows = vec![ngap::QosFlowSetupRequestItem::new(Qfi::new(1).unwrap(), parameters)];
    let tunnel = ngap::UpTransportLayerInformation::GtpTunnel(tunnel);
    let mut m = ngap::PduSessionResourceSetupRequestTransfer::new(tunnel, ngap::PduSessionType::Ipv4, flows);
    m.pdu_session_aggregate_maximum_bit_rate =
        Some(ngap::PduSessionAggregateMaximumBitRate::new(1_000_000, 1_000_000));
    m.to_vec()
}

fn establishment_accept(index: u32, asked: ie::PduSessionType) -> sm::EstablishmentAccept {
    let rules = QosRules::new(&[QosRule::new_default(1, 255, Qfi::new(1).unwrap())]).unwrap();
    let rate = BitRate::from_kbps(1000);
    let ambr = SessionAmbr { downlink: rate, uplink: rate };
    let mut m = sm::EstablishmentAccept::new(asked, SscMode::One, rules, ambr);
    let (ipv4, interface_id) = (Ipv4Addr::from(0x0a2d_0002 + index), (u64::from(index) + 2).to_be_bytes());
    let address = match asked {
        ie::PduSessionType::Ipv6 => PduAddressKind::Ipv6 { interface_id },
        ie::PduSessionType::Ipv4v6 => PduAddressKind::Ipv4v6 { ipv4, interface_id },
        _ => PduAddressKind::Ipv4(ipv4),
    };
    m.pdu_address = Some(address.into());
    m.dnn = "internet".parse().ok();
    m.s_nssai = Some(SLICE.into());
    let containers = [Container::dns_ipv4(Ipv4Addr::new(10, 45, 0, 1)), Container::ipv4_link_mtu(1400)];
    m.extended_pco = ExtendedPco::new(PcoDirection::ToUe, &containers);
    m
}

/// A packet in a tunnel, as the UPF sends it.
pub fn gpdu(teid: Teid, qfi: Qfi, packet: &[u8]) -> Vec<u8> {
    use whimbrel_gtpu::{GpduHeader, HEADER_OCTETS_MAX, PduSessionInformation};
    let header = GpduHeader::new(teid, Some(PduSessionInformation::Dl { qfi, rqi: false, ppi: None }));
    let mut datagram = vec![0; HEADER_OCTETS_MAX];
    let taken = header.write_before(packet.len(), &mut datagram).unwrap();
    datagram.drain(..HEADER_OCTETS_MAX - taken);
    datagram.extend_from_slice(packet);
    datagram
}

/// A message between two of the three.
enum OnWay {
    ToCore(usize, u16, Vec<u8>),
    ToGnb(usize, u16, Vec<u8>),
    Xn(usize, GlobalGnbId, XnMessage),
    Gtpu(usize, Vec<u8>),
    Up(usize, UplinkMessage),
    Down(ue::Input),
}

pub struct Net {
    way: VecDeque<OnWay>,
    /// What gNB (`false`) and UE (`true`) got, if it is kept.
    pub record: Option<Vec<(bool, Vec<u8>)>>,
    pub now: Instant,
    pub ue: Ue,
    pub gnb: Gnb,
    /// Another gNB, where there is one.
    pub target: Option<Gnb>,
    /// Which of the two has the UE.
    pub serving: usize,
    pub core: Core,
    pub events: Vec<ue::Event>,
    pub gnb_events: Vec<gnb::Event>,
    packets: Vec<(PduSessionId, Vec<u8>)>,
    gtpu: Vec<(SocketAddr, Vec<u8>)>,
    /// Datagrams from gNB to gNB are held until they are released.
    pub hold_gtpu: Option<Vec<(usize, Vec<u8>)>>,
}

/// The GTP-U address of the first or second gNB.
pub fn gtp_address(which: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, which as u8 + 1)
}

pub fn gnb_config(which: usize) -> GnbConfig {
    let id = GlobalGnbId::new(PlmnId::TEST, which as u32 + 1, 24).unwrap();
    GnbConfig::new(id, tai().tac, vec![SLICE], gtp_address(which).into())
}

impl Net {
    /// A gNB in service and a UE on its cell; `tune` may spoil the UE.
    pub fn with(tune: impl FnOnce(&mut UeConfig)) -> Self {
        let (k, opc) = (K::new([0x11; 16]), Opc::new([0x22; 16]));
        let supi: Supi = "imsi-999700000000001".parse().unwrap();
        let milenage = Milenage::new(&k, opc.clone());
        let mut config = UeConfig {
            profile: Arc::new(Profile::new(PlmnId::TEST, vec![SLICE])),
            supi,
            pei: Pei::from_digits([3; 16]).unwrap(),
            k,
            opc,
            sqn: UsimSqn::default(),
            suci: SuciSource::Null,
        };
        tune(&mut config);
        let mut net = Self {
            way: VecDeque::new(),
            record: None,
            now: NOW,
            ue: Ue::new(config),
            gnb: Gnb::new(gnb_config(0)),
            target: None,
            serving: 0,
            core: Core::new(supi, milenage, 0),
            events: Vec::new(),
            gnb_events: Vec::new(),
            packets: Vec::new(),
            gtpu: Vec::new(),
            hold_gtpu: None,
        };
        net.gnb(gnb::Input::AssociationUp { streams: 8, syntax: TransferSyntax::Per });
        net.ue(ue::Input::Cell(tai()));
        net
    }

    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn registered() -> Self {
        let mut net = Self::new();
        net.command(ue::UeCommand::Register);
        net
    }

    pub fn command(&mut self, command: ue::UeCommand) {
        self.ue(ue::Input::Command(command));
    }

    /// Adds the second gNB.
    pub fn add_target(&mut self, config: GnbConfig) {
        self.target = Some(Gnb::new(config));
        self.gnb_at(1, gnb::Input::AssociationUp { streams: 8, syntax: TransferSyntax::Per });
    }

    /// Sends what the core makes of itself.
    pub fn core(&mut self, act: impl FnOnce(&mut Core, &mut Out)) {
        let mut out = Out::new();
        act(&mut self.core, &mut out);
        let to = self.core.serving;
        self.way.extend(out.into_iter().map(|(stream, m)| OnWay::ToGnb(to, stream, m.to_vec())));
        self.arrive();
    }

    pub fn ue(&mut self, input: ue::Input) {
        self.ue_only(input);
        self.arrive();
    }

    pub fn gnb(&mut self, input: gnb::Input<'_>) {
        self.gnb_at(0, input);
    }

    pub fn gnb_at(&mut self, which: usize, input: gnb::Input<'_>) {
        self.gnb_only(which, input);
        self.arrive();
    }

    pub fn gnb_mut(&mut self, which: usize) -> &mut Gnb {
        if which == 0 { &mut self.gnb } else { self.target.as_mut().expect("there is a second gNB") }
    }

    /// A datagram of the UPF comes to the first gNB.
    pub fn gtpu(&mut self, datagram: &[u8]) {
        self.gtpu_at(0, datagram);
    }

    pub fn gtpu_at(&mut self, which: usize, datagram: &[u8]) {
        let source = (Ipv4Addr::new(127, 0, 0, 9).into(), 2152);
        self.gnb_at(which, gnb::Input::Gtpu { source, datagram });
    }

    /// A packet of the UPF in a tunnel of the first gNB.
    pub fn downlink(&mut self, teid: Teid, qfi: Qfi, packet: &[u8]) {
        self.gtpu_at(0, &gpdu(teid, qfi, packet));
    }

    /// What the UE has got.
    pub fn take_packets(&mut self) -> Vec<(PduSessionId, Vec<u8>)> {
        core::mem::take(&mut self.packets)
    }

    /// What gNBs have sent towards the UPF.
    pub fn take_gtpu(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        core::mem::take(&mut self.gtpu)
    }

    /// Releases the held datagrams between gNBs.
    pub fn release_gtpu(&mut self) {
        let held = self.hold_gtpu.take().unwrap_or_default();
        self.way.extend(held.into_iter().map(|(to, datagram)| OnWay::Gtpu(to, datagram)));
        self.arrive();
    }

    /// Everything that is on the way arrives, in order.
    fn arrive(&mut self) {
        while let Some(next) = self.way.pop_front() {
            match (&next, &mut self.record) {
                (OnWay::ToGnb(_, _, octets), Some(record)) => record.push((false, octets.clone())),
                (OnWay::Down(ue::Input::Radio(DownlinkMessage::Nas(nas))), Some(record)) => {
                    record.push((true, nas.clone()))
                }
                _ => {}
            }
            match next {
                OnWay::ToCore(from, stream, octets) => {
                    let message = Message::decode(&octets).unwrap();
                    let answers = self.core.mobility(from, stream, &message).unwrap_or_else(|| {
                        let answers = self.core.handle(stream, message);
                        answers.into_iter().map(|(stream, m)| (from, stream, m)).collect()
                    });
                    let to_gnb =
                        |(to, stream, m): (usize, u16, Message)| OnWay::ToGnb(to, stream, m.to_vec());
                    self.way.extend(answers.into_iter().map(to_gnb));
                }
                OnWay::ToGnb(to, stream, octets) => {
                    self.gnb_only(to, gnb::Input::Ngap { stream, octets: &octets });
                }
                OnWay::Xn(to, from, message) => self.gnb_only(to, gnb::Input::Xn { from, message }),
                OnWay::Gtpu(to, datagram) => {
                    let source = (gtp_address(1 - to).into(), 2152);
                    self.gnb_only(to, gnb::Input::Gtpu { source, datagram: &datagram });
                }
                OnWay::Up(to, up) => self.gnb_only(to, gnb::Input::Radio(UE, up)),
                OnWay::Down(input) => self.ue_only(input),
            }
        }
    }

    fn ue_only(&mut self, input: ue::Input) {
        let mut out = Outbox::new();
        self.ue.handle(self.now, input, &mut out);
        for output in out.drain() {
            match output {
                ue::Output::Radio(up) => {
                    if let UplinkMessage::HandoverComplete { to, .. } = &up {
                        self.serving = usize::from(*to != self.gnb.config().id);
                    }
                    self.way.push_back(OnWay::Up(self.serving, up));
                }
                ue::Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn gnb_only(&mut self, which: usize, input: gnb::Input<'_>) {
        let mut out = Outbox::new();
        let now = self.now;
        let gnb = self.gnb_mut(which);
        let own = gnb.config().id;
        gnb.handle(now, input, &mut out);
        for output in out.drain() {
            match output {
                gnb::Output::Ngap { stream, octets } => {
                    self.way.push_back(OnWay::ToCore(which, stream, octets))
                }
                gnb::Output::Radio(_, down) => self.way.push_back(OnWay::Down(ue::Input::Radio(down))),
                gnb::Output::Page(s_tmsi) => {
                    if self.ue.s_tmsi() == Some(s_tmsi) {
                        self.way.push_back(OnWay::Down(ue::Input::Paged));
                    }
                }
                gnb::Output::Xn { message, .. } => self.way.push_back(OnWay::Xn(1 - which, own, message)),
                gnb::Output::Gtpu { to, datagram } => {
                    let to = SocketAddr::from(to);
                    match (0..2).find(|w| to.ip() == gtp_address(*w)) {
                        Some(gnb) => match &mut self.hold_gtpu {
                            Some(held) => held.push((gnb, datagram)),
                            None => self.way.push_back(OnWay::Gtpu(gnb, datagram)),
                        },
                        None => self.gtpu.push((to, datagram)),
                    }
                }
                gnb::Output::Packet { session, packet, .. } => self.packets.push((session, packet)),
                gnb::Output::Event(event) => self.gnb_events.push(event),
                // This core has one endpoint.
                gnb::Output::Associate(_) | gnb::Output::Dissociate(_) | gnb::Output::FurtherNgap { .. } => {}
            }
        }
    }

    /// Lets time pass until no timer of a gNB runs any more.
    pub fn until_gnbs_rest(&mut self) {
        while let Some((at, which)) = (0..2).filter_map(|w| Some((self.gnb_mut(w).next_deadline()?, w))).min()
        {
            self.now = self.now.max(at);
            self.gnb_at(which, gnb::Input::Tick);
        }
    }

    /// Lets time pass to the next timer of the UE.
    pub fn until_next_timer(&mut self) {
        self.now = self.ue.next_deadline().expect("a timer runs");
        self.ue(ue::Input::Tick);
    }

    /// Takes the events and demands that there is no violation among them.
    pub fn take_events(&mut self) -> Vec<ue::Event> {
        let breach = |e: &&gnb::Event| matches!(e, gnb::Event::Violation { .. });
        let at_gnb: Vec<_> = self.gnb_events.iter().filter(breach).collect();
        assert!(at_gnb.is_empty(), "{at_gnb:?}");
        let at_ue: Vec<_> = self.events.iter().filter(|e| matches!(e, ue::Event::Violation(_))).collect();
        assert!(at_ue.is_empty(), "{at_ue:?}");
        core::mem::take(&mut self.events)
    }

    pub fn violations(&self) -> Vec<String> {
        let at_ue = self.events.iter().filter_map(|e| match e {
            ue::Event::Violation(v) => Some(v.to_string()),
            _ => None,
        });
        let at_gnb = self.gnb_events.iter().filter_map(|e| match e {
            gnb::Event::Violation { violation, .. } => Some(violation.to_string()),
            _ => None,
        });
        at_ue.chain(at_gnb).collect()
    }
}
