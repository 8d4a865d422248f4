//! A scripted network of many UEs: one core each, and a UPF that answers pings.

use std::collections::BTreeMap;

use whimbrel_gtpu::{GpduHeader, Gtpu, HEADER_OCTETS_MAX, PduSessionInformation, message_type};
use whimbrel_ids::{AmfUeNgapId, Qfi, Supi, Teid};
use whimbrel_nas::Envelope;
use whimbrel_nas::ie::MobileIdentity;
use whimbrel_nas::mm::Message as Mm;
use whimbrel_ngap::{Message, PduSessionResourceSetupResponseTransfer, UpTransportLayerInformation, peek};
use whimbrel_ran::fleet::ProvisionedUe;
use whimbrel_security::Milenage;

use crate::fake_core::Core;

#[derive(Default)]
pub struct Network {
    pub cores: Vec<Core>,
    by_supi: BTreeMap<Supi, usize>,
    /// The gNBs' tunnels, by the UE.
    tunnels: BTreeMap<usize, Teid>,
    pub pings: u32,
    /// The time spent here, if it is taken.
    pub timed: Option<std::time::Duration>,
}

impl Network {
    pub fn new(subscriptions: &[ProvisionedUe]) -> Self {
        let mut network = Self::default();
        for (i, s) in subscriptions.iter().enumerate() {
            let (k, opc) = s.key();
            let mut core = Core::new(s.supi, Milenage::new(&k, opc), i as u32);
            core.knobs.keep_connection = true;
            network.cores.push(core);
            network.by_supi.insert(s.supi, i);
        }
        network
    }

    /// What the core answers to a message of a gNB.
    pub fn ngap(&mut self, stream: u16, octets: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let begun = std::time::Instant::now();
        let answers = self.answer(stream, octets);
        if let Some(timed) = &mut self.timed {
            *timed += begun.elapsed();
        }
        answers
    }

    fn answer(&mut self, stream: u16, octets: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let message = Message::decode(octets).unwrap();
        let index = match &message {
            Message::InitialUeMessage(m) => self.sender(&m.nas_pdu),
            _ => {
                let id = peek(octets).and_then(|p| p.amf_ue_ngap_id);
                id.map_or(0, |id: AmfUeNgapId| (id.value() >> 20) as usize)
            }
        };
        let set_up = match &message {
            Message::PduSessionResourceSetupResponse(m) => m.pdu_session_resource_setup_list_su_res.first(),
            Message::InitialContextSetupResponse(m) => m.pdu_session_resource_setup_list_cxt_res.first(),
            _ => None,
        };
        if let Some(item) = set_up {
            let transfer = PduSessionResourceSetupResponseTransfer::decode(&item.transfer).unwrap();
            let flows = transfer.dl_qos_flow_per_tnl_information;
            let UpTransportLayerInformation::GtpTunnel(tunnel) = flows.up_transport_layer_information;
            self.tunnels.insert(index, tunnel.gtp_teid);
        }
        let answers = self.cores[index].handle(stream, message);
        answers.into_iter().map(|(stream, m)| (stream, m.to_vec())).collect()
    }

    fn sender(&self, nas: &[u8]) -> usize {
        let plain = match Envelope::parse(nas).unwrap() {
            Envelope::PlainMm(plain) => plain,
            Envelope::Protected(envelope) => envelope.payload,
            Envelope::PlainSm(_) => panic!("bare 5GSM"),
        };
        let identity = match Mm::decode(plain).unwrap() {
            Mm::RegistrationRequest(m) => m.mobile_identity,
            Mm::ServiceRequest(m) => m.s_tmsi,
            Mm::DeregistrationRequestUeOriginating(m) => m.mobile_identity,
            other => panic!("{:?} begins nothing", other.message_type()),
        };
        match identity {
            MobileIdentity::Suci(suci) => self.by_supi[&suci.plain_supi().unwrap()],
            MobileIdentity::Guti(guti) => (guti.tmsi.0 >> 12) as usize,
            MobileIdentity::STmsi(s) => (s.tmsi.0 >> 12) as usize,
            other => panic!("{other:?}"),
        }
    }

    /// The UPF: the answer to a datagram, if it held a ping.
    pub fn gtpu(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let gtpu = Gtpu::parse(datagram).unwrap();
        // An error indication of a gNB for an answer that came after its tunnel was gone, for one.
        if gtpu.message_type != message_type::G_PDU {
            return None;
        }
        let index = (gtpu.teid.0 - 0x55) as usize;
        if gtpu.payload.get(6) == Some(&58) && gtpu.payload.get(40) == Some(&133) {
            return self.downlink(index, &advertisement());
        }
        let mut packet = gtpu.payload.to_vec();
        // IPv4 without options, ICMP echo request.
        if packet.len() < 28 || packet[0] != 0x45 || packet[9] != 1 || packet[20] != 8 {
            return None;
        }
        let (source, destination): ([u8; 4], [u8; 4]) =
            (packet[12..16].try_into().unwrap(), packet[16..20].try_into().unwrap());
        packet[12..16].copy_from_slice(&destination);
        packet[16..20].copy_from_slice(&source);
        packet[20] = 0;
        // The type was 8 and is 0: the sum of ones' complement grows by 0x0800.
        let sum = u32::from(u16::from_be_bytes([packet[22], packet[23]])) + 0x0800;
        let sum = (sum & 0xffff) + (sum >> 16);
        packet[22..24].copy_from_slice(&(sum as u16).to_be_bytes());
        self.pings += 1;
        self.downlink(index, &packet)
    }

    /// A packet in the tunnel of a UE, if the UPF has it.
    fn downlink(&self, index: usize, packet: &[u8]) -> Option<Vec<u8>> {
        let flow = PduSessionInformation::Dl { qfi: Qfi::new(1).unwrap(), rqi: false, ppi: None };
        let header = GpduHeader::new(*self.tunnels.get(&index)?, Some(flow));
        let mut answer = vec![0; HEADER_OCTETS_MAX];
        let taken = header.write_before(packet.len(), &mut answer).unwrap();
        answer.drain(..HEADER_OCTETS_MAX - taken);
        answer.extend_from_slice(packet);
        Some(answer)
    }
}

/// A router advertisement of 2001:db8:0:7::/64 from fe80::1 to all nodes, its checksum worked out by hand.
fn advertisement() -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 48, 58, 255];
    packet.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend_from_slice(&[0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend_from_slice(&[134, 0, 0xa7, 0x62, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend_from_slice(&[3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0]);
    packet.extend_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet
}
