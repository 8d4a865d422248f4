//! Veiled users (LOCA, chapter 4): the broker issues tokens, opens session groups, grants in them and takes usage reports, all over
//! HTTP; and the relays through which operators reach it without showing where they are.
//!
//! | part | here |
//! | --- | --- |
//! | the thread that runs the machine of `whimbrel-privacy` and commits its records before answers leave | [`engine`] |
//! | what is durable | [`storage`] |
//! | settlement periods, their tables, and claims | [`claims`] |
//! | the SIM of a veiled user, as a file | [`profile`] |
//! | the two relays | [`relay`] |

pub mod claims;
pub mod engine;
pub mod profile;
pub mod relay;
pub mod storage;
