//! What each command does, one a file. A command fails with one sentence, which the caller prints.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod console;
pub(crate) mod cpf;
pub(crate) mod foresight;
pub(crate) mod gnb_config;
pub(crate) mod import;
pub(crate) mod locate;
pub(crate) mod log_level;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod operation;
pub(crate) mod packet_logger;
pub(crate) mod radio;
pub(crate) mod reference;
pub(crate) mod reflect;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod show;
pub(crate) mod subscriber;
pub(crate) mod support_bundle;
pub(crate) mod top;
pub(crate) mod unit;
pub(crate) mod why;
