//! Tokens and attach as a whole: bad input, messages, blindness, the attacker model, the ledger.

mod attach;
mod blindness;
mod changes;
mod home;
mod kept;
mod ledger;
mod messages;
mod model;
mod orders;
mod rotation;
mod tokens;
mod world;
