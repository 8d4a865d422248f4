//! Tokens and attach as a whole: bad input, messages, blindness, the attacker model, the ledger.

mod attach;
mod blindness;
mod changes;
mod kept;
mod ledger;
mod messages;
mod model;
mod tokens;
mod world;
