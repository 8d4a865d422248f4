//! JSON bodies of the service-based interfaces of a 5G core, Release 17: what Whimbrel sends and reads as consumer and producer.
//!
//! | module | specification | supported | not supported |
//! | --- | --- | --- | --- |
//! | [`common`] | TS 29.571 | identities, slices, areas and cells, QoS, problems, patches, links | UTRA and GERA locations, V2X, ProSe, MBS, trace |
//! | [`nnrf`] | TS 29.510 | profiles of AMF, SMF, UPF, AUSF, UDM, PCF, CHF; subscriptions; discovery; tokens | stored searches, SCP and SEPP profiles, vendor-specific features |
//! | [`nudm_ueau`] | TS 29.503 §6.3 | vectors of 5G-AKA and EAP-AKA', resynchronisation, authentication events | HSS, GBA, ProSe |
//! | [`nudm_sdm`] | TS 29.503 §6.1 | access and mobility, SMF selection, sessions, slices, subscriptions, notifications | LCS, V2X, ProSe, MBS, trace, SMS management |
//! | [`nudm_uecm`] | TS 29.503 §6.2 | registrations of AMF and SMF, deregistration | SMSF, IP-SM-GW, NWDAF |
//! | [`nausf`] | TS 29.509 §6.1 | 5G-AKA and EAP exchanges, deregistration | RG and ProSe authentication, SoR and UPU protection |
//! | [`npcf_am`] | TS 29.507 §5.6 | associations, reports, updates, terminations | NWDAF, time distribution, wireline areas |
//! | [`npcf_sm`] | TS 29.512 §5.6 | sessions, PCC and session rules with QoS, charging, gates and usage; reports, notifications | Ethernet, ATSSS, TSN, QoS monitoring, application detection |
//! | [`nchf`] | TS 32.291 §6.1 | converged charging of PDU sessions, quotas, notifications | charging of SMS, NEF, registration, IMS, ProSe, edge; roaming |
//! | [`nsmf_pdu_session`] | TS 29.502 §6.1 | SM contexts without roaming | PDU sessions between SMFs, EPS, small data |
//! | [`multipart`] | TS 29.500 §6.1.2.4 | bodies with N1 and N2 messages | |
//! | [`namf_comm`] | TS 29.518 §6.1 | transfer of N1 and N2 messages | UE contexts, event subscriptions, non-UE messages |
//!
//! Rules of all types: a member that a type does not have is skipped (TS 29.501 §5.2.2.2); a member without a value is left out, and null is
//! written only where a clause has it; a value that an enumeration of this release lacks is kept as `Unknown`, except where the clause closes
//! the enumeration; every text, array and map has a bound, and every number its range. An array that the tables want to have one entry is
//! read without any where cores in use write it so. `parse(emit(x)) == x` for every value.
#![forbid(unsafe_code)]

#[macro_use]
mod macros;

pub mod common;
pub mod json;
pub mod multipart;
pub mod namf_comm;
pub mod nausf;
pub mod nchf;
pub mod nnrf;
pub mod npcf_am;
pub mod npcf_sm;
pub mod nsmf_pdu_session;
pub mod nudm_sdm;
pub mod nudm_ueau;
pub mod nudm_uecm;

pub use json::{BodyError, BodyErrorKind, BoundedList, BoundedMap, from_slice, to_vec};
