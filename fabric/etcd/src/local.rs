//! The witness of one host: the manager of a unit takes etcd's place, over a Unix socket.
//!
//! A request is a connection: one line of JSON there ([`LocalRequest`]), one back ([`LocalAnswer`]). A watch gets a line of changes each time
//! that there are some, until either end closes the connection.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use whimbrel_resilience::membership::{EtcdFailure, EtcdReply, EtcdRequest, WatchedChange};

/// A manager answers in microseconds; one that is being replaced, in a second or two.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How the manager of a unit is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAccess {
    /// Path of its socket.
    pub socket: PathBuf,
    /// The unit's token, which only its processes know.
    pub token: String,
}

/// A request of a process of the unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LocalRequest {
    /// The unit's token.
    pub token: String,
    /// The request to the local etcd.
    pub request: EtcdRequest,
}

/// The manager's answer.
pub type LocalAnswer = Result<EtcdReply, EtcdFailure>;

impl LocalAccess {
    /// Sends a request and reads its answer.
    pub(crate) async fn ask(&self, request: EtcdRequest) -> LocalAnswer {
        let asked = async {
            let mut lines = self.open(request).await?.lines();
            let line = lines.next_line().await?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            serde_json::from_str(&line).map_err(std::io::Error::from)
        };
        match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(e)) => {
                Err(EtcdFailure::Unreachable(format!("the manager at {}: {e}", self.socket.display())))
            }
            Err(_) => {
                Err(EtcdFailure::Unreachable(format!("the manager at {} is silent", self.socket.display())))
            }
        }
    }

    /// Sends a watch and hands out changes as they come, until the connection ends or `on_changes` returns false.
    pub(crate) async fn watch(
        &self,
        request: EtcdRequest,
        mut on_changes: impl FnMut(Vec<WatchedChange>) -> bool,
    ) {
        let Ok(stream) = self.open(request).await else { return };
        let mut lines = stream.lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let Ok(changes) = serde_json::from_str(&line) else { return };
            if !on_changes(changes) {
                return;
            }
        }
    }

    async fn open(&self, request: EtcdRequest) -> std::io::Result<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let mut line = serde_json::to_vec(&LocalRequest { token: self.token.clone(), request })?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        Ok(BufReader::new(stream))
    }
}
