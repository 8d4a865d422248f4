//! The profile of a SIM for veiled attaches, as the broker hands it to the maker of the SIM.

use serde::{Deserialize, Serialize};
use whimbrel_broker_client::{hex, unhex};
use whimbrel_open::crypto::Share;
use whimbrel_open::id::UserId;
use whimbrel_open::msg::EpochKey;
use whimbrel_privacy::crypto::{SigningKey, VerifyingKey};
use whimbrel_privacy::user::UserSim;
use zeroize::Zeroize;

/// What a SIM holds for one broker, in a form for files (JSON). All octets are hexadecimal digits.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VeilSimProfile {
    /// The user's identity at the broker.
    pub user: String,
    /// The broker's domain.
    pub broker: String,
    /// The broker's PLMN.
    pub plmn: String,
    /// The key under which the broker signs.
    pub broker_key: String,
    /// Identifier of the key to which requests are sealed.
    pub epoch: u8,
    /// The key of that epoch.
    pub epoch_key: String,
    /// The user's private key.
    pub private_key: String,
    /// The last counter used.
    #[serde(default)]
    pub counter: u64,
}

impl core::fmt::Debug for VeilSimProfile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "VeilSimProfile(broker {}, …)", self.broker)
    }
}

impl Drop for VeilSimProfile {
    fn drop(&mut self) {
        self.private_key.zeroize();
    }
}

impl VeilSimProfile {
    /// The profile of a SIM whose private key has these octets.
    pub fn new(sim: &UserSim, private_key: &[u8; 32]) -> Self {
        Self {
            user: hex(&sim.user.0),
            broker: sim.broker.to_string(),
            plmn: sim.network.to_string(),
            broker_key: hex(&sim.broker_key.octets()),
            epoch: sim.epoch.id,
            epoch_key: hex(&sim.epoch.public.0),
            private_key: hex(private_key),
            counter: sim.counter,
        }
    }

    /// The profile as its file has it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The SIM. Errors: the field that is wrong.
    pub fn sim(&self) -> Result<UserSim, &'static str> {
        fn octets<const N: usize>(text: &str, field: &'static str) -> Result<[u8; N], &'static str> {
            unhex(text).and_then(|o| o.try_into().ok()).ok_or(field)
        }
        let broker_key = VerifyingKey::from_octets(octets(&self.broker_key, "broker_key")?);
        Ok(UserSim {
            user: UserId(octets(&self.user, "user")?),
            broker: self.broker.parse().map_err(|_| "broker")?,
            network: self.plmn.parse().map_err(|_| "plmn")?,
            broker_key: broker_key.ok_or("broker_key")?,
            epoch: EpochKey { id: self.epoch, public: Share(octets(&self.epoch_key, "epoch_key")?) },
            signing: SigningKey::new(&octets(&self.private_key, "private_key")?),
            counter: self.counter,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_gives_its_sim_back_and_names_the_field_that_is_wrong() {
        let signing = SigningKey::new(&[9; 32]);
        let sim = UserSim {
            user: UserId([1; 16]),
            broker: "b.example".parse().unwrap(),
            network: "999/72".parse().unwrap(),
            broker_key: signing.verifying_key(),
            epoch: EpochKey { id: 3, public: Share([4; 32]) },
            signing: SigningKey::new(&[5; 32]),
            counter: 7,
        };
        let profile: VeilSimProfile =
            serde_json::from_str(&VeilSimProfile::new(&sim, &[5; 32]).to_json()).unwrap();
        let read = profile.sim().unwrap();
        assert_eq!((read.user, &read.broker, read.network), (sim.user, &sim.broker, sim.network));
        assert_eq!((read.epoch, read.counter), (sim.epoch, sim.counter));
        assert_eq!(read.signing.verifying_key(), sim.signing.verifying_key());
        let mut wrong = profile.clone();
        wrong.plmn = "99".into();
        assert_eq!(wrong.sim().unwrap_err(), "plmn");
    }
}
