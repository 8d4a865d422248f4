//! Recorded exchanges: the inputs of a core in one process with their clock and entropy, and the messages that it sent.
//!
//! A build with the feature `demonstrations` writes one where the variable [`VARIABLE`] names the file. Its replay needs neither the peer nor
//! a socket (`replay.rs`), so that an exchange with another implementation is a test from then on. The first line of the file is a
//! [`RecordingStart`], each further line an [`ExchangeStep`], in JSON. The keys of all subscribers are in it: record with test identities alone.
//!
//! A recording ends with the first input or order that it cannot hold: those of clusters, brokers and peer AMFs, and the operator's orders
//! for gNBs and the configuration.

#[cfg(test)]
mod replay;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use whimbrel_control::{Command, UeId};
use whimbrel_ids::{Instant, Supi};
use whimbrel_resilience::{Input, Outbox};
use whimbrel_store::{Format, Secrets, Store, WithSecrets};

use crate::config;
use crate::entropy::{DrawTape, SystemEntropy};

/// The variable that names the file.
const VARIABLE: &str = "WHIMBREL_RECORD_INPUTS";

/// Octets as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Hex(String);

impl Hex {
    fn of(octets: &[u8]) -> Self {
        Self(octets.iter().map(|octet| format!("{octet:02x}")).collect())
    }
}

/// The state in which a recording begins.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordingStart {
    /// The version of the core that was recorded.
    version: String,
    /// The core's time, in microseconds since the Unix epoch.
    at: u64,
    /// Draws of the CTA when it was made.
    draws: Vec<Hex>,
    /// The subscribers with their keys, as `whimbrel subscriber export --format json --secrets` writes them.
    subscribers: serde_json::Value,
}

/// An input and the messages that left with it.
#[derive(Debug, Serialize, Deserialize)]
struct ExchangeStep {
    at: u64,
    input: RecordedInput,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    draws: Vec<Hex>,
    #[serde(flatten)]
    sent: SentMessages,
}

/// The messages that an input caused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SentMessages {
    /// NGAP messages: association, stream, octets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ngap: Vec<(u32, u16, Hex)>,
    /// PFCP messages, by UPF.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pfcp: Vec<(u8, Hex)>,
    /// Associations that were aborted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    aborted: Vec<u32>,
}

impl SentMessages {
    /// The messages of `out` behind the first ones, which an earlier input caused.
    fn of(out: &Outbox, (ngap, pfcp, aborted): (usize, usize, usize)) -> Self {
        let ngap = out.ngap.get(ngap..).unwrap_or_default().iter();
        let pfcp = out.pfcp.get(pfcp..).unwrap_or_default().iter();
        let aborted = out.abort.get(aborted..).unwrap_or_default().iter();
        Self {
            ngap: ngap
                .map(|(association, stream, octets)| (association.0, *stream, Hex::of(octets)))
                .collect(),
            pfcp: pfcp.map(|(upf, octets)| (upf.0, Hex::of(octets))).collect(),
            aborted: aborted.map(|association| association.0).collect(),
        }
    }
}

/// [`Input`], without those that a core in one process does not get.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedInput {
    AssociationUp {
        association: u32,
        outbound_streams: u16,
        addresses: Vec<IpAddr>,
    },
    AddressConfirmed(u32, IpAddr),
    AssociationAnswered(u32),
    AssociationDown(u32),
    Ngap(u32, u16, Hex),
    Pfcp(u8, Hex),
    Command(UeId, Command),
    WaitedMicroseconds(u64),
    /// Each subscriber with its record as it is now, or none where it was removed.
    SubscribersChanged(Vec<(Supi, Option<serde_json::Value>)>),
    Tick,
}

impl RecordedInput {
    /// `None`: a recording cannot hold it.
    fn of(input: &Input<'_>, store: &mut Store) -> Option<Self> {
        Some(match input {
            Input::AssociationUp { association, outbound_streams, addresses } => Self::AssociationUp {
                association: association.0,
                outbound_streams: *outbound_streams,
                addresses: addresses.clone(),
            },
            Input::AddressConfirmed(association, address) => Self::AddressConfirmed(association.0, *address),
            Input::AssociationAnswered(association) => Self::AssociationAnswered(association.0),
            Input::AssociationDown(association) => Self::AssociationDown(association.0),
            Input::Ngap(association, stream, octets) => Self::Ngap(association.0, *stream, Hex::of(octets)),
            Input::Pfcp(upf, octets) => Self::Pfcp(upf.0, Hex::of(octets)),
            Input::Command(ue, command) => Self::Command(*ue, *command),
            Input::Waited(waited) => Self::WaitedMicroseconds(waited.as_micros() as u64),
            Input::SubscribersChanged(Some(supis)) => {
                let mut record = |supi: &Supi| {
                    let record = store.get(*supi).ok()?;
                    let record = record.map(|record| serde_json::to_value(WithSecrets(&record))).transpose();
                    Some((*supi, record.ok()?))
                };
                Self::SubscribersChanged(supis.iter().map(&mut record).collect::<Option<_>>()?)
            }
            Input::Tick => Self::Tick,
            Input::SubscribersChanged(None)
            | Input::Cpf(..)
            | Input::CpfLost(_)
            | Input::Rings(_)
            | Input::Move(..)
            | Input::PeerAmf(..)
            | Input::Broker(..)
            | Input::Udm(..)
            | Input::DeregisteredByUdm(_)
            | Input::Charging(..)
            | Input::Policy(..)
            | Input::PolicyNotified(..)
            | Input::SmContext(..)
            | Input::SmfOrdered(..)
            | Input::SmContextRequested(_)
            | Input::TransferAnswered(..)
            | Input::Predicted(..) => return None,
        })
    }
}

/// An input that is about to be handled, and how many messages waited to be sent before it.
pub(super) struct BegunInput {
    at: Instant,
    input: Option<RecordedInput>,
    waiting: (usize, usize, usize),
}

/// Writes a recording.
pub(super) struct InputRecorder {
    file: BufWriter<File>,
    tape: DrawTape,
}

impl InputRecorder {
    /// The recorder that the environment asks for, in a build that has one. Errors: one sentence.
    pub(super) fn of_environment(entropy: &mut SystemEntropy) -> Result<Option<Self>, String> {
        let Some(path) = std::env::var_os(VARIABLE).filter(|_| config::HAS_DEMONSTRATION_KEYS) else {
            return Ok(None);
        };
        let file = File::create(&path)
            .map_err(|e| format!("the recording {} ({VARIABLE}) cannot be written: {e}", path.display()))?;
        info!(file = %path.display(), "the inputs of this core are recorded, with the keys of its subscribers");
        let tape = DrawTape::default();
        entropy.put_on(tape.clone());
        Ok(Some(Self { file: BufWriter::new(file), tape }))
    }

    /// Writes the beginning, once the CTA is made. Errors: one sentence.
    pub(super) fn begin(&mut self, at: Instant, store: &mut Store) -> Result<(), String> {
        let mut subscribers = Vec::new();
        store.export(&mut subscribers, Format::Json, Secrets::Include).map_err(|e| e.to_string())?;
        let subscribers = serde_json::from_slice(&subscribers).map_err(|e| e.to_string())?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let beginning = RecordingStart { version, at: at.0, draws: self.draws(), subscribers };
        self.write(&beginning).map_err(|e| format!("the recording cannot be written: {e}"))
    }

    /// Notes an input before it is handled.
    pub(super) fn before(
        &self,
        at: Instant,
        input: &Input<'_>,
        store: &mut Store,
        out: &Outbox,
    ) -> BegunInput {
        let waiting = (out.ngap.len(), out.pfcp.len(), out.abort.len());
        BegunInput { at, input: RecordedInput::of(input, store), waiting }
    }

    /// Writes an input that was handled. `None`: the recording has ended.
    pub(super) fn after(mut self, begun: BegunInput, out: &Outbox) -> Option<Self> {
        let Some(input) = begun.input else {
            info!("the recording of inputs ends here: it cannot hold what came now");
            return None;
        };
        let sent = SentMessages::of(out, begun.waiting);
        let step = ExchangeStep { at: begun.at.0, input, draws: self.draws(), sent };
        self.write(&step).inspect_err(|e| warn!("the recording of inputs ends here: {e}")).ok()?;
        Some(self)
    }

    fn draws(&self) -> Vec<Hex> {
        self.tape.take().iter().map(|draw| Hex::of(draw)).collect()
    }

    /// Writes a line through to the file: a core may be killed while it records.
    fn write(&mut self, line: &impl Serialize) -> std::io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")?;
        self.file.flush()
    }
}
