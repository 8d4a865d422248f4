//! The sockets and devices of a unit's UPF, which its manager holds, so that the next UPF goes on with them.

use std::os::fd::{AsFd, OwnedFd};

use whimbrel_user_io::{Descriptors, StartError};

use crate::function::descriptors;

/// The sockets and devices of the UPF that this one replaces, or new ones, which the manager holds from then on: with the last of the two
/// they end. Errors: those of opening them.
pub(super) fn ports_of_unit(c: &whimbrel_user_io::Config) -> Result<Descriptors, StartError> {
    let former = former_ports();
    if !former.is_empty() {
        let other = || {
            std::io::Error::other(
                "the number of packet threads or devices has changed: restart the whole unit",
            )
        };
        return Descriptors::from_list(former, c).ok_or_else(|| StartError::System(other()));
    }
    let mut fleeting = c.clone();
    fleeting.keeps_state = false;
    let opened = Descriptors::open(&fleeting)?;
    let held = opened.try_clone().map_err(StartError::System)?;
    for (i, descriptor) in held.into_list().iter().enumerate() {
        descriptors::keep(&port_name(i), descriptor.as_fd());
    }
    Ok(opened)
}

/// The sockets and devices of the UPF that runs, for its replica; `None` if they are not there, or not as many as are configured.
pub(in crate::core) fn inherited_ports(c: &whimbrel_user_io::Config) -> Option<Descriptors> {
    Descriptors::from_list(former_ports(), c)
}

fn former_ports() -> Vec<OwnedFd> {
    (0..).map_while(|i| descriptors::take(&port_name(i))).collect()
}

fn port_name(i: usize) -> String {
    format!("{}{i}", descriptors::UPF_PORTS)
}
