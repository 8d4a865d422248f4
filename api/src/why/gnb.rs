//! Why a gNB is not up, or what its state is.

use std::sync::Arc;

use whimbrel_control::Remedy;
use whimbrel_control::config::Config;
use whimbrel_control::event::SetupRefusal;
use whimbrel_node::local_time::when;
use whimbrel_node::observation::{GnbView, HistoryEntry, HistoryEvent, Name, RefusalReason, SubjectHistory};

use super::super::HandlerContext;
use super::{OF_GNB_MAX, WhyAnswer, at, gnbs, lines, mended_and_fix, now, silence};

/// About the gNB of this name, `gnb-999/70-1`.
pub(super) async fn answer(shared: &Arc<HandlerContext>, name: &str) -> WhyAnswer {
    let up = gnbs(shared).await.into_iter().find(|g| name.strip_prefix("gnb-") == Some(&g.id));
    let history = shared.console.histories(|h| h.of(&Name::Gnb(name.into())).cloned());
    let refused = shared.console.histories(|h| h.through(name, OF_GNB_MAX));
    let now = now();
    let sentence = match (up, &history) {
        (Some(gnb), _) => is_up(name, &gnb, history.as_ref()),
        (None, Some(history)) => is_not_up(shared, name, history),
        (None, None) => return silence::of_gnb(shared, name),
    };
    WhyAnswer {
        sentence,
        history: history.as_ref().map(|h| lines(h, now)).unwrap_or_default(),
        refused_ues: refused.iter().map(|r| r.sentence()).collect(),
        refusals: history.iter().flat_map(|h| h.refusals().filter_map(HistoryEntry::refusal)).collect(),
        ..WhyAnswer::default()
    }
}

fn is_up(name: &str, gnb: &GnbView, history: Option<&SubjectHistory>) -> String {
    let now = now();
    let up = history.and_then(SubjectHistory::state).filter(|e| matches!(e.what, HistoryEvent::Up(_)));
    let since = up.map_or_else(|| gnb.since.clone(), |e| when(e.last, now));
    let called = gnb.name.as_ref().map(|n| format!(" ({n})")).unwrap_or_default();
    let ues = if gnb.connected_ues == 1 { "UE" } else { "UEs" };
    let is = format!(
        "{name}{called} is up since {since}, from {}, with {} connected {ues}",
        gnb.address, gnb.connected_ues
    );
    let last = history.and_then(|h| h.entries.back());
    match last {
        Some(HistoryEntry { what: HistoryEvent::Refused(record, ..), last, closed: None, .. }) => {
            format!("{is}; last, at {}, {}; fix: {}.", when(*last, now), record.why, record.fix)
        }
        Some(HistoryEntry { what: HistoryEvent::Noted(text), last, .. }) => {
            format!("{is}; last, at {}, {text}.", when(*last, now))
        }
        _ => format!("{is}; nothing is wrong."),
    }
}

fn is_not_up(shared: &HandlerContext, name: &str, history: &SubjectHistory) -> String {
    let now = now();
    let newest = history.entries.iter().rev().find(|e| !matches!(e.what, HistoryEvent::Up(_)));
    let again = "none if the gNB retries by itself; otherwise restart it";
    match newest {
        Some(entry) => match &entry.what {
            HistoryEvent::Refused(record, RefusalReason::Setup(why), _) => {
                let control = shared.console.control();
                let remedy = match &control {
                    Some(config) => remedy(why, config),
                    None => Remedy::Fix(record.fix.clone()),
                };
                format!(
                    "{name} is not up: its NG SETUP REQUEST was refused {}: {}{}",
                    at(entry, now),
                    record.reason(),
                    mended_and_fix(remedy, None, now, again)
                )
            }
            HistoryEvent::Down(how) => {
                let addresses: Vec<String> =
                    shared.config.n2.addresses.iter().map(ToString::to_string).collect();
                format!(
                    "{name} is down since {}: {how}; fix: start the gNB, and check that it reaches N2 of the core at {} port {}.",
                    when(entry.last, now),
                    addresses.join(" or "),
                    shared.config.n2.port
                )
            }
            HistoryEvent::Noted(text) => format!(
                "{name} is not up: last, at {}, {text}; fix: see the gNB's log.",
                when(entry.last, now)
            ),
            _ => silence::of_gnb(shared, name).sentence,
        },
        None => silence::of_gnb(shared, name).sentence,
    }
}

/// The remedy for a refused NG SETUP REQUEST under the configuration in force.
fn remedy(why: &SetupRefusal, config: &Config) -> Remedy {
    let amf = &config.amf;
    match why {
        SetupRefusal::Plmn { offered, .. } if offered.contains(&amf.plmn.to_string()) => {
            Remedy::Mended(format!("PLMN {} is served now", amf.plmn))
        }
        SetupRefusal::Plmn { .. } => Remedy::Fix(format!("set the gNB's PLMN to {}", amf.plmn)),
        SetupRefusal::Tac { offered, .. } => match amf.tacs.iter().find(|t| offered.contains(&t.value())) {
            Some(tac) => Remedy::Mended(format!("TAC {tac} was added to `tacs` later")),
            None => Remedy::Fix(format!(
                "add {} to `tacs` and run `whimbrel reload`, or change the gNB's TAC",
                join(offered)
            )),
        },
        SetupRefusal::Slice { offered, .. } => {
            match amf.slices.iter().find(|s| offered.contains(&s.to_string())) {
                Some(slice) => Remedy::Mended(format!("slice {slice} was added to `slices` later")),
                None => Remedy::Fix(format!(
                    "add {} to `slices` and run `whimbrel reload`, or change the gNB's slices",
                    join(offered)
                )),
            }
        }
        SetupRefusal::IdentityInUse { .. } => Remedy::Fix("give each gNB its own Global RAN Node ID".into()),
        SetupRefusal::NotListed | SetupRefusal::OutsideNetworks if amf.gnbs.is_empty() => {
            Remedy::Mended("`n2.gnbs` was removed later".into())
        }
        SetupRefusal::NotListed => Remedy::Fix(
            "add it to `n2.gnbs` with the networks that it connects from, and run `whimbrel reload`".into(),
        ),
        SetupRefusal::OutsideNetworks => Remedy::Fix(
            "if it is your gNB, add its network in `n2.gnbs` and run `whimbrel reload`".into(),
        ),
        SetupRefusal::FurtherElsewhere { .. } => Remedy::Fix(
            "if it is your gNB, list it in `n2.gnbs` with all networks that it connects from, and run `whimbrel reload`".into(),
        ),
        SetupRefusal::Disconnected => Remedy::Fix("if it is your gNB, wait for 60 s".into()),
        SetupRefusal::Limit(limit) if config.limits.ran_nodes > *limit => {
            Remedy::Mended("`limits.ran_nodes` was raised later".into())
        }
        SetupRefusal::Limit(_) => Remedy::Fix("raise `limits.ran_nodes` and run `whimbrel reload`".into()),
        SetupRefusal::NodeType => {
            Remedy::Fix("connect a gNB: ng-eNBs, N3IWFs and other RAN nodes are not supported".into())
        }
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
