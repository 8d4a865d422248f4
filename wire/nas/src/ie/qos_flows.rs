//! QoS flow descriptions (TS 24.501 §9.11.4.12). The element keeps its octets, for the reason that
//! [`QosRules`](super::QosRules) does.

use whimbrel_ids::{DecodeError, FiveQi, Qfi, Reader};

use super::pdu_session::BitRate;
use super::{Octets, SmCause};
use crate::codec::Ie;

/// QoS flow descriptions as carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosFlowDescriptions(Octets<3, 65535>);

/// What to do with a QoS flow description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowOperation {
    /// Create a new one.
    Create = 1,
    /// The flow is deleted.
    Delete = 2,
    /// The flow is modified.
    Modify = 3,
}

/// One QoS flow description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosFlowDescription {
    /// Identifier of the flow.
    pub qfi: Qfi,
    /// What to do with its description.
    pub operation: FlowOperation,
    /// The parameters replace (on create: are) all of the flow's (the E bit); if false on modify they extend them.
    pub e_bit: bool,
    /// Parameters; those not known here are skipped on reception.
    pub parameters: Vec<FlowParameter>,
}

/// A parameter of a QoS flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowParameter {
    /// 5QI of the flow.
    FiveQi(FiveQi),
    /// Guaranteed flow bit rate, uplink.
    GfbrUplink(BitRate),
    /// Guaranteed flow bit rate, downlink.
    GfbrDownlink(BitRate),
    /// Maximum flow bit rate, uplink.
    MfbrUplink(BitRate),
    /// Maximum flow bit rate, downlink.
    MfbrDownlink(BitRate),
    /// Averaging window in milliseconds.
    AveragingWindow(u16),
    /// The EPS bearer to which the flow is mapped.
    EpsBearerIdentity(u8),
}

/// Parameters of one description: six bits count them.
const PARAMETERS_MAX: usize = 63;

impl FlowParameter {
    /// Reads one; `None` for a parameter that is not known here.
    fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        const IE: &str = "QoS flow parameter";
        let id = r.u8(IE)?;
        let len = r.u8(IE)?;
        let mut r = r.sub(usize::from(len), IE)?;
        Ok(Some(match id {
            1 => Self::FiveQi(FiveQi(r.u8(IE)?)),
            2 => Self::GfbrUplink(BitRate::decode(&mut r)?),
            3 => Self::GfbrDownlink(BitRate::decode(&mut r)?),
            4 => Self::MfbrUplink(BitRate::decode(&mut r)?),
            5 => Self::MfbrDownlink(BitRate::decode(&mut r)?),
            6 => Self::AveragingWindow(r.u16(IE)?),
            7 => Self::EpsBearerIdentity(r.u8(IE)? >> 4),
            _ => return Ok(None),
        }))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let rate = |id: u8, rate: BitRate, out: &mut Vec<u8>| {
            out.extend_from_slice(&[id, 3]);
            rate.encode(out);
        };
        match *self {
            Self::FiveQi(five_qi) => out.extend_from_slice(&[1, 1, five_qi.0]),
            Self::GfbrUplink(r) => rate(2, r, out),
            Self::GfbrDownlink(r) => rate(3, r, out),
            Self::MfbrUplink(r) => rate(4, r, out),
            Self::MfbrDownlink(r) => rate(5, r, out),
            Self::AveragingWindow(ms) => {
                let [high, low] = ms.to_be_bytes();
                out.extend_from_slice(&[6, 2, high, low]);
            }
            Self::EpsBearerIdentity(id) => out.extend_from_slice(&[7, 1, id << 4]),
        }
    }
}

impl QosFlowDescription {
    /// A new flow of a 5QI, without guaranteed rates.
    pub fn non_gbr(qfi: Qfi, five_qi: FiveQi) -> Self {
        Self {
            qfi,
            operation: FlowOperation::Create,
            e_bit: true,
            parameters: vec![FlowParameter::FiveQi(five_qi)],
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, SmCause> {
        let bad = |_: DecodeError| SmCause::SyntacticalErrorInQosOperation;
        let [qfi, operation, head] = r.array("QoS flow description").map_err(bad)?;
        let operation = match operation >> 5 {
            1 => FlowOperation::Create,
            2 => FlowOperation::Delete,
            3 => FlowOperation::Modify,
            _ => return Err(SmCause::SyntacticalErrorInQosOperation),
        };
        let mut parameters = Vec::new();
        for _ in 0..head & 0x3f {
            parameters.extend(FlowParameter::decode(r).map_err(bad)?);
        }
        let qfi = Qfi::new(qfi & 0x3f).ok_or(SmCause::SyntacticalErrorInQosOperation)?;
        Ok(Self { qfi, operation, e_bit: head & 0x40 != 0, parameters })
    }
}

impl QosFlowDescriptions {
    /// Of descriptions; `None` if there are none or they do not fit.
    pub fn new(flows: &[QosFlowDescription]) -> Option<Self> {
        let mut octets = Vec::new();
        for flow in flows {
            let parameters = flow.parameters.get(..PARAMETERS_MAX).unwrap_or(&flow.parameters);
            let head = u8::from(flow.e_bit) << 6 | parameters.len() as u8;
            octets.extend_from_slice(&[flow.qfi.value(), (flow.operation as u8) << 5, head]);
            parameters.iter().for_each(|p| p.encode(&mut octets));
        }
        Octets::new(octets).map(Self)
    }

    /// The descriptions.
    ///
    /// Errors: the 5GSM cause that the procedure answers: #84.
    pub fn flows(&self) -> Result<Vec<QosFlowDescription>, SmCause> {
        let mut r = Reader::new(&self.0);
        let mut flows = Vec::new();
        while !r.is_empty() {
            flows.push(QosFlowDescription::decode(&mut r)?);
        }
        Ok(flows)
    }

    /// The octets as received or built.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl Ie for QosFlowDescriptions {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Octets::decode(r).map(Self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
