//! The flat form of an idle UE context.

use serde::de::DeserializeOwned;

use super::{Flat, FlatError, Form, FrameWriter, ReceivedFrame, bounds, read};
use crate::envelope::UeId;
use crate::state::UeContext;

/// Version of the written form; it is increased with every change.
pub(super) const VERSION: u16 = 10;

/// Decodes a body of one version.
type BodyDecoder = fn(&[u8]) -> Result<Box<UeContext>, FlatError>;

/// A reader for each version that is read: the written one, and each that a release wrote, at least the last
/// one, so that a replica of the new program reads checkpoints from a primary of the old one. No release
/// wrote another version so far. A former version has its own types, where they differ, in a module named
/// after it, and a `From` to the present ones.
pub(super) const READERS: [(u16, BodyDecoder); 1] = [(VERSION, open::<UeContext>)];

/// Estimated octets of a registered UE, and of each session.
const UE: usize = 640;
const SESSION: usize = 192;

/// The state of an idle UE, as sent to replicas and stored there. A replica decodes it only when it is promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(super) flat: Flat,
    pub(super) about: About,
}

/// The part of a checkpoint that a replica reads: its UE and its position in the UE's log. The body begins with it, in
/// every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
pub(super) struct About {
    pub(super) ue: UeId,
    pub(super) clock: u64,
    pub(super) terms: (u32, u32),
}

impl Checkpoint {
    /// The checkpoint of a UE; `None` while a procedure runs, which cannot be encoded.
    pub fn of(ue: &UeContext) -> Option<Self> {
        ue.is_idle().then(|| Self::written(ue))
    }

    /// What a restart of the core needs of a UE, to be read by [`UeContext::restarted`]; `None` while a procedure other than paging runs.
    pub fn for_restart(ue: &UeContext) -> Option<Self> {
        ue.can_be_restarted().then(|| Self::written(ue))
    }

    fn written(ue: &UeContext) -> Self {
        let capability = ue.amf.radio.capability.as_ref().map_or(0, |c| c.len());
        let room = UE + SESSION * ue.sessions.len() + capability;
        let flat = FrameWriter::frame(Form::Checkpoint, VERSION, room, ue);
        let about = About { ue: ue.id, clock: ue.clock, terms: ue.terms };
        Self { flat, about }
    }

    /// Takes a checkpoint from its octets: only the frame and the header are decoded.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`].
    pub fn from_octets(octets: &[u8]) -> Result<Self, FlatError> {
        ReceivedFrame::open(Form::Checkpoint, octets)?;
        Self::from_made(Flat(octets.into()))
    }

    /// Takes a checkpoint from a frame whose CRC is verified.
    pub(super) fn from_made(flat: Flat) -> Result<Self, FlatError> {
        Self::read_by(&READERS, flat)
    }

    /// Takes it if there is a reader of its version.
    pub(super) fn read_by(readers: &[(u16, BodyDecoder)], flat: Flat) -> Result<Self, FlatError> {
        let frame = ReceivedFrame::unverified(Form::Checkpoint, flat.octets())?;
        reader_of(readers, frame.version)?;
        let (about, _) = postcard::take_from_bytes::<About>(frame.body).map_err(|_| FlatError::Malformed)?;
        about.ue.check()?;
        Ok(Self { flat, about })
    }

    /// Its octets. They hold keys.
    pub fn octets(&self) -> &[u8] {
        self.flat.octets()
    }

    /// The frame with the checkpoint in it.
    pub fn into_flat(self) -> Flat {
        self.flat
    }

    /// The UE of the checkpoint.
    pub fn ue_id(&self) -> UeId {
        self.about.ue
    }

    /// Clock of the last input in it.
    pub fn clock(&self) -> u64 {
        self.about.clock
    }

    /// The highest terms of its inputs: of the CTA, and of the UE's assignment.
    pub fn terms(&self) -> (u32, u32) {
        self.about.terms
    }

    /// The UE, to be given to [`Shard::restore`](crate::Shard::restore).
    ///
    /// Errors: [`FlatError::Malformed`], [`FlatError::Contradiction`].
    pub fn context(&self) -> Result<Box<UeContext>, FlatError> {
        self.ue_by(&READERS)
    }

    /// The UE, if there is a reader of its version.
    pub(super) fn ue_by(&self, readers: &[(u16, BodyDecoder)]) -> Result<Box<UeContext>, FlatError> {
        let frame = ReceivedFrame::open(Form::Checkpoint, self.octets())?;
        let ue = reader_of(readers, frame.version)?(frame.body)?;
        bounds::check(&ue)?;
        Ok(ue)
    }
}

fn reader_of(readers: &[(u16, BodyDecoder)], version: u16) -> Result<BodyDecoder, FlatError> {
    let reader = readers.iter().find(|(v, _)| *v == version);
    reader.map(|(_, read)| *read).ok_or(FlatError::UnknownVersion(version))
}

/// Decodes a body of this type's version.
pub(super) fn open<P: DeserializeOwned + Into<UeContext>>(body: &[u8]) -> Result<Box<UeContext>, FlatError> {
    Ok(Box::new(read::<P>(body)?.into()))
}
