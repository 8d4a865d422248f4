//! The tests of this crate, in one program: client and server over sockets on loopback.

mod client;
mod common;
mod nrf;
mod retry;
mod server;
mod tls;
mod token;
