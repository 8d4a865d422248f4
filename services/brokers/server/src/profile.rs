//! The profile of a SIM, as the broker hands it to the maker of the SIM.

use serde::{Deserialize, Serialize};
use whimbrel_broker_client::files::public_key;
use whimbrel_broker_client::{hex, unhex};
use whimbrel_open::crypto::{Share, SigningKey};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::{EpochKey, Ticket};
use whimbrel_open::user::UserSim;
use zeroize::Zeroize;

/// What a SIM holds for one broker, in a form for files (JSON). All octets are hexadecimal digits.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimProfile {
    /// The user's identity at the broker.
    pub user: String,
    /// The broker's domain.
    pub broker: String,
    /// The key under which the broker signs.
    pub broker_key: String,
    /// Identifier of the epoch key.
    pub epoch: u8,
    /// The epoch key.
    pub epoch_key: String,
    /// The user's private key.
    pub private_key: String,
    /// The last counter used.
    #[serde(default)]
    pub counter: u64,
    /// The ticket for the next attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
}

impl core::fmt::Debug for SimProfile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SimProfile(broker {}, …)", self.broker)
    }
}

impl Drop for SimProfile {
    fn drop(&mut self) {
        self.private_key.zeroize();
    }
}

impl SimProfile {
    /// The profile of a SIM whose private key has these octets.
    pub fn new(sim: &UserSim, private_key: &[u8; 32]) -> Self {
        Self {
            user: hex(&sim.user.0),
            broker: sim.broker.to_string(),
            broker_key: hex(&sim.broker_key.octets()),
            epoch: sim.epoch.id,
            epoch_key: hex(&sim.epoch.public.0),
            private_key: hex(private_key),
            counter: sim.counter,
            ticket: sim.ticket.map(|t| hex(&t.0)),
        }
    }

    /// The SIM. Errors: the field that is wrong.
    pub fn sim(&self) -> Result<UserSim, &'static str> {
        fn octets<const N: usize>(text: &str, field: &'static str) -> Result<[u8; N], &'static str> {
            unhex(text).and_then(|o| o.try_into().ok()).ok_or(field)
        }
        let ticket = self.ticket.as_deref().map(|t| octets(t, "ticket")).transpose()?;
        Ok(UserSim {
            user: UserId(octets(&self.user, "user")?),
            broker: self.broker.parse().map_err(|_| "broker")?,
            broker_key: public_key(&self.broker_key).ok_or("broker_key")?,
            epoch: EpochKey { id: self.epoch, public: Share(octets(&self.epoch_key, "epoch_key")?) },
            signing: SigningKey::new(&octets(&self.private_key, "private_key")?),
            counter: self.counter,
            ticket: ticket.map(Ticket),
        })
    }
}
