//! LOCA ("Location-oblivious cellular architecture", chapter 4 of the dissertation that the crate `open` follows): an operator
//! serves a user of a broker; the operator knows where the user is and not its identity, the broker knows the
//! identity and neither the place nor the operator.
//!
//! | part | here |
//! | --- | --- |
//! | oblivious function of the tokens, RFC 9497 | [`voprf`] |
//! | tokens, and H(token) | [`token`] |
//! | issuing keys in an append-only log with witnesses | [`log`] |
//! | messages, in octets | [`msg`]; `MESSAGES.md` specifies them |
//! | the broker: issues tokens, opens session groups, grants | [`broker`] |
//! | the operator: wallet of tokens, which token is broadcast, attach | [`wallet`], [`rotation`], [`operator`] |
//! | the user: attach | [`user`] |
//! | which party sees which field | [`ledger`] |
//! | how the operator reaches the broker | [`channel`], and through two relays [`relay`] |
//! | signatures, HPKE, keys | [`crypto`] |
//!
//! Time, octets and entropy come in; octets, keys and refusals go out.
#![forbid(unsafe_code)]

pub mod broker;
pub mod channel;
pub mod crypto;
pub mod ledger;
pub mod log;
pub mod msg;
pub mod operator;
pub mod relay;
pub mod rotation;
#[cfg(feature = "serde")]
mod serde_as;
pub mod token;
pub mod user;
pub mod voprf;
pub mod wallet;
