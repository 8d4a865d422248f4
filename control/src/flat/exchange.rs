//! Flat forms of inputs and outputs between a CTA and a CPF, and of their shared configuration.
//!
//! A log is replayed by the code version that began it (DESIGN: "versions"), so each of these forms has one version at
//! a time.

use super::{Flat, FlatError, Form, FrameWriter, read_frame};
use crate::config::Config;
use crate::envelope::{Batch, Effect, Envelope, Payload, UeId};
use crate::n14::N14;
use crate::upf::UPFS_MAX;

/// Version of the form of an [`Envelope`]; it is increased with every change.
pub(super) const ENVELOPE_VERSION: u16 = 12;
/// Version of the form of a [`Batch`]; it is increased with every change.
pub(super) const BATCH_VERSION: u16 = 11;

/// Version of the form of a [`Config`]; it is increased with every change.
pub(super) const CONFIG_VERSION: u16 = 18;

/// Version of the form of an [`N14`]; it is increased with every change. The checkpoint in it has a version of its own.
pub(super) const N14_VERSION: u16 = 6;

/// Octets of a configuration with few data networks.
const CONFIG: usize = 1024;
/// Typical octets of an envelope or a batch without its messages.
const BESIDE: usize = 128;

impl Envelope {
    /// Its octets. They may hold keys, of a vector from the UDM.
    pub fn to_flat(&self) -> Flat {
        FrameWriter::frame(Form::Envelope, ENVELOPE_VERSION, self.room(), self)
    }

    /// Appends its octets.
    pub fn write_flat(&self, to: &mut Vec<u8>) {
        FrameWriter::append(Form::Envelope, ENVELOPE_VERSION, self.room(), self, to);
    }

    /// Estimated length of its octets.
    fn room(&self) -> usize {
        let octets = match &self.payload {
            Payload::InitialUeMessage { octets, .. }
            | Payload::Ngap { octets, .. }
            | Payload::HandoverRequired { octets, .. }
            | Payload::PeerAmf { octets, .. }
            | Payload::PfcpAnswer { octets: Some(octets), .. }
            | Payload::PfcpReport { octets, .. } => octets.len(),
            Payload::PfcpAnswer { octets: None, .. } | Payload::Tick | Payload::Command(_) => 0,
            Payload::Predicted { .. } => BESIDE,
            Payload::Udm { .. } => BESIDE, // a vector, or a subscription
            Payload::Charging { .. } => 4 * BESIDE, // a reference
            Payload::Policy { .. } | Payload::PolicyNotified { .. } => 4 * BESIDE, // rules
            Payload::SmContext { .. } | Payload::SmfOrdered { .. } => 8 * BESIDE, // messages of UE and gNB
            Payload::Broker { .. } => self.payload.octets(),
            Payload::SmContextRequested(_) => 4 * BESIDE + self.payload.octets(), // URIs
            Payload::TransferAnswered(_) => 0,
        };
        BESIDE + octets
    }

    /// Reads what [`Envelope::to_flat`] wrote.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`].
    pub fn from_flat(octets: &[u8]) -> Result<Self, FlatError> {
        let envelope: Self = read_frame(Form::Envelope, ENVELOPE_VERSION, octets)?;
        envelope.ue.check()?;
        Ok(envelope)
    }
}

impl Batch {
    /// Its octets. They may hold keys, for a gNB.
    pub fn to_flat(&self) -> Flat {
        FrameWriter::frame(Form::Batch, BATCH_VERSION, self.room(), self)
    }

    /// Appends its octets.
    pub fn write_flat(&self, to: &mut Vec<u8>) {
        FrameWriter::append(Form::Batch, BATCH_VERSION, self.room(), self, to);
    }

    /// Estimated length of its octets.
    fn room(&self) -> usize {
        let octets = |effect: &Effect| match effect {
            Effect::N2 { octets, .. }
            | Effect::N4 { octets, .. }
            | Effect::N4Answer { octets, .. }
            | Effect::Page { octets, .. } => octets.len(),
            Effect::Udm(_) => BESIDE,
            Effect::Charging(_) | Effect::Policy(_) | Effect::SmContext(_) => 4 * BESIDE,
            Effect::PeerAmf { octets, .. } => octets.octets().len(),
            Effect::Broker(_) | Effect::RemoteAmf(_) => 4 * BESIDE,
            Effect::SmContextAnswered(_, answer) => answer.octets(),
        };
        BESIDE + self.outputs.iter().map(|o| octets(&o.effect)).sum::<usize>()
    }

    /// Reads what [`Batch::to_flat`] wrote.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`] and [`FlatError::Contradiction`].
    pub fn from_flat(octets: &[u8]) -> Result<Self, FlatError> {
        read_frame(Form::Batch, BATCH_VERSION, octets)
    }
}

impl Config {
    /// Its octets. They hold no keys.
    pub fn to_flat(&self) -> Flat {
        FrameWriter::frame(Form::Config, CONFIG_VERSION, CONFIG, self)
    }

    /// Reads what [`Config::to_flat`] wrote.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`].
    pub fn from_flat(octets: &[u8]) -> Result<Self, FlatError> {
        let config: Self = read_frame(Form::Config, CONFIG_VERSION, octets)?;
        match config.smf.upfs.len() {
            0..=UPFS_MAX => Ok(config),
            _ => Err(FlatError::Contradiction("more UPFs than have numbers")),
        }
    }
}

impl N14 {
    /// Its octets. They may hold keys.
    pub fn to_flat(&self) -> Flat {
        FrameWriter::frame(Form::N14, N14_VERSION, BESIDE, self)
    }

    /// Reads what [`N14::to_flat`] wrote.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`].
    pub fn from_octets(octets: &[u8]) -> Result<Self, FlatError> {
        let message: Self = read_frame(Form::N14, N14_VERSION, octets)?;
        message.relation.source.check()?;
        Ok(message)
    }
}

impl UeId {
    /// Whether the identity is valid.
    pub(super) fn check(self) -> Result<(), FlatError> {
        if self.slot < Self::SLOTS { Ok(()) } else { Err(FlatError::Contradiction("a slot is 24 bits")) }
    }
}
