//! Transfers by themselves: each comes back whole, and what must be refused is.

use proptest::prelude::*;

use super::*;
use crate::ie::{Cause, CauseNas};

macro_rules! come_back {
    ($s:ident: $($name:ident)*) => { $(
        let v = $name::sample(&mut $s);
        prop_assert_eq!($name::decode(&v.to_vec()), Ok(v));
    )* };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse_of_emit_is_the_transfer(seed: u64) {
        let mut s = Source::new(seed);
        come_back!(s:
            PduSessionResourceSetupRequestTransfer PduSessionResourceSetupResponseTransfer
            PduSessionResourceSetupUnsuccessfulTransfer PduSessionResourceReleaseCommandTransfer
            PduSessionResourceReleaseResponseTransfer PduSessionResourceModifyRequestTransfer
            PduSessionResourceModifyResponseTransfer PduSessionResourceModifyUnsuccessfulTransfer
            PduSessionResourceModifyIndicationTransfer PduSessionResourceModifyConfirmTransfer
            PduSessionResourceModifyIndicationUnsuccessfulTransfer PduSessionResourceNotifyTransfer
            PduSessionResourceNotifyReleasedTransfer PathSwitchRequestTransfer
            PathSwitchRequestAcknowledgeTransfer PathSwitchRequestSetupFailedTransfer
            PathSwitchRequestUnsuccessfulTransfer HandoverRequiredTransfer HandoverCommandTransfer
            HandoverRequestAcknowledgeTransfer HandoverPreparationUnsuccessfulTransfer
            HandoverResourceAllocationUnsuccessfulTransfer SecondaryRatDataUsageReportTransfer
        );
    }
}

#[track_caller]
fn kind<T: core::fmt::Debug>(result: Result<T, DecodeError>) -> DecodeErrorKind {
    result.unwrap_err().kind
}

#[test] // TS 38.413 §10.3.5 inside a transfer: tunnel, session type and flows are mandatory
fn a_container_without_its_mandatory_ies_is_refused() {
    assert_eq!(
        kind(PduSessionResourceSetupRequestTransfer::decode(&[0, 0, 0])),
        DecodeErrorKind::MissingMandatory
    );
    assert_eq!(kind(PduSessionResourceSetupRequestTransfer::decode(&[0, 0, 1])), DecodeErrorKind::Truncated);
    // Nothing is mandatory in a modification.
    assert!(PduSessionResourceModifyRequestTransfer::decode(&[0, 0, 0]).is_ok());
}

#[test] // TS 38.413 §10.3.4: IE 60000, unknown
fn a_container_with_an_unknown_ie_goes_by_its_criticality() {
    let with = |criticality| [0, 0, 1, 0xea, 0x60, criticality, 1, 0];
    assert_eq!(kind(PduSessionResourceModifyRequestTransfer::decode(&with(0x00))), DecodeErrorKind::Unknown);
    assert_eq!(
        PduSessionResourceModifyRequestTransfer::decode(&with(0x40)),
        Ok(PduSessionResourceModifyRequestTransfer::new())
    );
}

#[test]
fn a_cut_transfer_is_truncated() {
    let octets = PduSessionResourceReleaseCommandTransfer::new(Cause::Nas(CauseNas::NormalRelease)).to_vec();
    // Two leading bits, three of the group, one of extension, two of the value.
    assert_eq!(octets, [0b0001_0000]);
    assert_eq!(kind(PduSessionResourceReleaseCommandTransfer::decode(&[])), DecodeErrorKind::Truncated);
}
