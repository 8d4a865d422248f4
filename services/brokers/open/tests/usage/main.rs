//! Usage reports: octets, accounts, judgement and statements (chapter 3.4.3).

mod accounts;
mod judgement;
mod market;
mod messages;
mod parties;
