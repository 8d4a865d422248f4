//! The UPF's replica (§3.5): what it costs to keep it up to date. The UPF writes a session's record into the shared state in any case; the replica,
//! which sleeps, reads what has changed once a second.

use std::io;
use std::path::Path;
use std::time::Instant as Clock;

use clap::Args;
use serde_json::json;
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::Message;
use whimbrel_user::{
    Config, Event, FollowedState, Input, Ipv4Net, Outbox, SessionMemory, Shards, UpfC, UpfCReplica,
};
use whimbrel_user_io::{StateFile, boot_id};

use super::{finish, round};
use crate::measure::median;
use crate::plot::{Axis, Plot, Series};
use crate::upf::smf::{self, GNB, SMF, START, activation, association, smf_establishment};

/// What is to be reached, in microseconds for a session that has changed.
const GOAL_US: f64 = 5.0;
/// Sessions that change between two looks.
const CHANGED: [usize; 3] = [0, 1, 100];

/// What can be chosen.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Sessions of the UPF.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 60_000])]
    sessions: Vec<u32>,
    /// Looks of the replica of each kind.
    #[arg(long, default_value_t = 300)]
    looks: u32,
}

impl Options {
    pub(super) fn quick(&mut self) {
        (self.sessions, self.looks) = (vec![20, 40], 3);
    }
}

/// A UPF without a state, or with one that its replica follows.
struct Node {
    upf: UpfC,
    out: Outbox,
    seids: Vec<Seid>,
    sequence: u32,
}

impl Node {
    /// With so many sessions.
    fn new(upf: UpfC, sessions: u32) -> Self {
        let mut node = Self { upf, out: Outbox::default(), seids: Vec::new(), sequence: 0 };
        node.ask(None, association(1));
        for n in 0..sessions {
            node.ask(Some(Seid(0)), smf_establishment(u64::from(n) + 1, true, false));
        }
        node
    }

    fn ask(&mut self, seid: Option<Seid>, message: impl Into<Message>) {
        self.sequence += 1;
        let octets = message.into().to_octets(seid, self.sequence);
        self.handle(&octets);
    }

    fn handle(&mut self, octets: &[u8]) {
        self.upf.handle(START, Input::Pfcp { peer: SMF, octets }, &mut self.out);
        for event in self.out.events.drain(..) {
            if let Event::SessionEstablished { session, .. } = event {
                self.seids.push(session.seid());
            }
        }
        self.out.changes.clear();
        self.out.datagrams.clear();
    }

    /// A session's downlink leads to another tunnel. Returns the microseconds.
    fn change(&mut self, n: usize) -> f64 {
        self.sequence += 1;
        let tunnel = activation(Teid(self.sequence), GNB.ip());
        let octets = Message::from(tunnel).to_octets(Some(self.seids[n % self.seids.len()]), self.sequence);
        let begun = Clock::now();
        self.handle(&octets);
        begun.elapsed().as_nanos() as f64 / 1000.0
    }
}

fn config(sessions: u32) -> Config {
    let mut config = smf::config();
    config.sessions_max = sessions + 1;
    config.data_networks.truncate(1);
    config.data_networks[0].ipv4_pools = vec![Ipv4Net { address: [10, 0, 0, 0].into(), prefix: 8 }];
    config
}

/// Median microseconds with so many sessions.
struct Figures {
    sessions: u32,
    /// A modification of a session, by a UPF without a state and by one with it.
    modification: [f64; 2],
    /// A look of the replica, by how many sessions have changed since the last one.
    look: [f64; CHANGED.len()],
    /// The same with what the pipelines do.
    synchronisation: [f64; CHANGED.len()],
}

fn measure(sessions: u32, looks: u32) -> io::Result<Figures> {
    let failed = |e: whimbrel_user::ConfigError| io::Error::other(e.to_string());
    let (config, directory) = (config(sessions), tempfile::tempdir()?);
    let path = directory.path().join("state");
    let (mut owned, mut out) = (config.clone(), Outbox::default());
    let file = StateFile::open(&path, &config)?;
    let state = SessionMemory::open(Box::new(file), &mut owned, boot_id(), START);
    let (upf, _) = UpfC::with_state(owned, START, state, &mut out).map_err(failed)?;
    let mut kept = Node::new(upf, sessions);
    let mut bare = Node::new(UpfC::new(config.clone(), START).map_err(failed)?, sessions);

    let mut followed = config.clone();
    let (file, _lock) = StateFile::follow(&path, &followed)?;
    let state = FollowedState::open(Box::new(file), &mut followed, boot_id())
        .map_err(|refusal| io::Error::other(refusal.to_string()))?
        .ok_or(io::ErrorKind::NotFound)?;
    let mut pipelines = Shards::new(&followed).map_err(failed)?;
    let mut replica = UpfCReplica::new(followed, START, state).map_err(failed)?;
    let mut look = || {
        let (begun, mut out) = (Clock::now(), Outbox::default());
        replica.catch_up(START, &mut out);
        let looked = begun.elapsed();
        out.changes.into_iter().for_each(|change| pipelines.apply(START, change));
        [looked, begun.elapsed()].map(|took| took.as_nanos() as f64 / 1000.0)
    };
    look();
    let mut modification = [Vec::new(), Vec::new()];
    let (mut looked, mut synchronised) =
        ([const { Vec::new() }; CHANGED.len()], [const { Vec::new() }; CHANGED.len()]);
    for n in 0..looks as usize {
        for (kind, changed) in CHANGED.into_iter().enumerate() {
            for changed in 0..changed {
                let session = n * 7919 + changed * 31;
                modification[0].push(bare.change(session));
                modification[1].push(kept.change(session));
            }
            let [l, s] = look();
            looked[kind].push(l);
            synchronised[kind].push(s);
        }
    }
    Ok(Figures {
        sessions,
        modification: modification.map(median),
        look: looked.map(median),
        synchronisation: synchronised.map(median),
    })
}

pub(super) fn run(options: &Options, plots: &Path) -> io::Result<()> {
    println!(
        "paper: a replica is frozen and takes no processor; its state is synchronised outside of the path of requests (§3.5)\nhere:  microseconds, median of {} looks of the replica; a UPF's modification of a session with a state and without",
        options.looks
    );
    let all = options.sessions.iter().map(|n| measure(*n, options.looks)).collect::<io::Result<Vec<_>>>()?;
    println!(
        "\n{:>10}{:>16}{:>14}{:>16}{:>16}{:>18}{:>16}",
        "sessions",
        "UPF, no state",
        "UPF, state",
        "look, nothing",
        "look, one",
        "with pipelines",
        "of a hundred"
    );
    for f in &all {
        println!(
            "{:>10}{:>16.2}{:>14.2}{:>16.2}{:>16.2}{:>18.2}{:>16.2}",
            f.sessions,
            f.modification[0],
            f.modification[1],
            f.look[0],
            f.look[1],
            f.synchronisation[1],
            f.synchronisation[2] / CHANGED[2] as f64
        );
    }
    println!(
        "the last two are a session's whole synchronisation, alone and as one of a hundred (aim: less than {GOAL_US:.0})"
    );
    let points = |of: fn(&Figures) -> f64| all.iter().map(|f| (f64::from(f.sessions), of(f))).collect();
    Plot {
        title: "Keeping the UPF's replica up to date",
        x: "sessions",
        y: "microseconds",
        log_y: true,
        axis: Axis::Numbers,
        series: vec![
            Series { name: "nothing changed".into(), points: points(|f| f.look[0]) },
            Series { name: "one session".into(), points: points(|f| f.synchronisation[1]) },
            Series {
                name: "one of a hundred".into(),
                points: points(|f| f.synchronisation[2] / CHANGED[2] as f64),
            },
        ],
    }
    .write(plots, "l25gc-replica")?;
    let figures: Vec<_> = all
        .iter()
        .map(|f| {
            json!({
                "sessions": f.sessions, "modification_us": f.modification.map(round), "look_us": f.look.map(round),
                "synchronisation_us": f.synchronisation.map(round),
            })
        })
        .collect();
    finish("replica", &json!({ "by_sessions": figures, "changed": CHANGED, "aim_us": GOAL_US }));
    Ok(())
}
