//! Messages between a CTA and a network function of its unit that is a process of its own: the service operations of UDM, PCF and CHF in a flat
//! form, without JSON.

use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_control::charging::{ChargingAnswer, ChargingRequest};
use whimbrel_control::sm_policy::{PolicyAnswer, PolicyNotification, PolicyRequest};
use whimbrel_control::udm::{NfType, UdmAnswer, UdmRequest};
use whimbrel_ids::{Dnn, PduSessionId, SNssai, Supi};

use super::LinkError;
use super::octets::{read, whole, write};

/// A request of a UE's machine to a network function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FunctionRequest {
    /// Operation of the UDM (TS 29.503).
    Udm(UdmRequest),
    /// Operation of the PCF (TS 29.512).
    Pcf(PolicyRequest),
    /// Operation of the CHF (TS 32.290).
    Chf(ChargingRequest),
}

/// The answer to a [`FunctionRequest`], of the same function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FunctionAnswer {
    /// The answer of the UDM.
    Udm(UdmAnswer),
    /// The answer of the PCF.
    Pcf(PolicyAnswer),
    /// The answer of the CHF.
    Chf(ChargingAnswer),
}

/// An order of a function in the middle of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FunctionOrder {
    /// Npcf_SMPolicyControl_UpdateNotify (TS 29.512 §4.2.3).
    Policy {
        /// Subscriber of the session.
        supi: Supi,
        /// Identity of the session.
        psi: PduSessionId,
        /// New policies, or the end of the session.
        notification: PolicyNotification,
    },
    /// Nchf_ConvergedCharging_Notify (TS 32.290 §5.3.2.5).
    Charging {
        /// Subscriber of the session.
        supi: Supi,
        /// Identity of the session.
        psi: PduSessionId,
        /// Charging of the session ends; if false, its usage is to be reported.
        abort: bool,
    },
}

/// From a CTA to the process of a network function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToFunction {
    /// A request. It may come a second time, and over the link of another CTA, if its answer was lost.
    Request {
        /// To be repeated in the answer.
        number: u64,
        /// Operation of the function.
        request: FunctionRequest,
    },
    /// The order of this number was handled. Orders that are not confirmed are sent to the next CTA again.
    Taken(u64),
}

/// From the process of a network function to a CTA.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromFunction {
    /// The first message.
    Serves {
        /// The kind of function.
        function: NfType,
        /// The slice whose sessions it serves, if it serves one alone.
        slice: Option<SNssai>,
    },
    /// The answer to the request of this number.
    Answer {
        /// Number of the request.
        number: u64,
        /// Result of the operation.
        answer: FunctionAnswer,
    },
    /// An order, to be confirmed with [`ToFunction::Taken`].
    Order {
        /// To be repeated in the confirmation.
        number: u64,
        /// The session, and what becomes of it.
        order: FunctionOrder,
    },
}

/// Identity of a policy association at a PCF of the unit. It names the session, so that each process of the PCF knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReference {
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
}

/// `2-00000a/internet`.
impl fmt::Display for PolicyReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.s_nssai, self.dnn)
    }
}

impl PolicyReference {
    /// Reads what `Display` wrote.
    pub fn read(text: &str) -> Option<Self> {
        let (s_nssai, dnn) = text.split_once('/')?;
        Some(Self { s_nssai: s_nssai.parse().ok()?, dnn: dnn.parse().ok()? })
    }
}

macro_rules! octets {
    ($message:ty) => {
        impl $message {
            /// Appends its octets. They may hold keys.
            pub fn write(&self, to: &mut Vec<u8>) {
                write(self, &[], to);
            }

            /// Reads what [`Self::write`] wrote. Errors: [`LinkError::Malformed`].
            pub fn read(octets: &[u8]) -> Result<Self, LinkError> {
                let (message, rest) = read(octets)?;
                whole(message, rest)
            }
        }
    };
}

octets!(ToFunction);
octets!(FromFunction);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_control::udm::{Identity, ServiceFault, UdmError};

    use super::*;

    #[test]
    fn each_message_is_read_as_it_was_written_and_nothing_may_follow_or_lack() {
        let supi: Supi = "imsi-999700000000001".parse().unwrap();
        let psi = PduSessionId::new(5).unwrap();
        let request = UdmRequest::GenerateAuthData {
            identity: Identity::Supi(supi),
            rand: [7; 16],
            resynchronisation: None,
        };
        let request = FunctionRequest::Udm(request);
        for message in [ToFunction::Request { number: 1 << 40, request }, ToFunction::Taken(7)] {
            let mut octets = Vec::new();
            message.write(&mut octets);
            assert_eq!(format!("{:?}", ToFunction::read(&octets).unwrap()), format!("{message:?}"));
            assert!(ToFunction::read(&[&octets[..], &[0]].concat()).is_err());
            assert!((0..octets.len()).all(|end| ToFunction::read(&octets[..end]).is_err()));
        }
        let answer = FunctionAnswer::Udm(UdmAnswer::Registered(Err(UdmError::UserNotFound)));
        let failed = FunctionAnswer::Pcf(PolicyAnswer::Failed(ServiceFault::TimedOut));
        let notification = PolicyNotification::Terminated { reactivate: true };
        for message in [
            FromFunction::Serves { function: NfType::Pcf, slice: Some(SNssai::sst(2)) },
            FromFunction::Answer { number: 9, answer },
            FromFunction::Answer { number: 9, answer: failed },
            FromFunction::Order { number: 3, order: FunctionOrder::Policy { supi, psi, notification } },
            FromFunction::Order { number: 4, order: FunctionOrder::Charging { supi, psi, abort: false } },
        ] {
            let mut octets = Vec::new();
            message.write(&mut octets);
            assert_eq!(format!("{:?}", FromFunction::read(&octets).unwrap()), format!("{message:?}"));
            assert!(FromFunction::read(&[&octets[..], &[0]].concat()).is_err());
            assert!((0..octets.len()).all(|end| FromFunction::read(&octets[..end]).is_err()));
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..300), head in 0u8..12) {
            for octets in [octets.clone(), [&[0, 0, head], octets.as_slice()].concat(), [&[1, 0, head], octets.as_slice()].concat()] {
                let mut again = Vec::new();
                if let Ok(message) = ToFunction::read(&octets) {
                    message.write(&mut again);
                    prop_assert!(ToFunction::read(&again).is_ok());
                }
                again.clear();
                if let Ok(message) = FromFunction::read(&octets) {
                    message.write(&mut again);
                    prop_assert!(FromFunction::read(&again).is_ok());
                }
            }
        }
    }
}
