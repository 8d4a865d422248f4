//! The audit log, newest lines first.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use whimbrel_node::subscribers;

use super::HandlerContext;
use super::input::{PageLimit, Query, page};
use super::problem::ProblemDetails;
use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};
use crate::audit;

/// The homes whose entries are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Homes {
    /// This core alone.
    #[default]
    Own,
    /// All that share the subscribers in PostgreSQL.
    All,
}

/// Selects the lines to return.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AuditQuery {
    /// Most lines to return; 100 if absent.
    limit: Option<PageLimit>,
    /// `all`: the lines of all homes that share PostgreSQL, each with ` home=` and the name of its home in front of ` former=`; `own` if absent.
    homes: Option<Homes>,
}

pub(super) async fn list(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<AuditQuery>,
) -> HandlerResult<Json<Vec<String>>> {
    let (limit, homes) = (page(query.limit), query.homes.unwrap_or_default());
    let read = tokio::task::spawn_blocking(move || {
        let store = &shared.config.store.path;
        let own = audit::newest(store, limit)
            .map_err(|e| ProblemDetails::unavailable(format!("the audit log cannot be read: {e}")))?;
        if homes == Homes::Own {
            return Ok(own);
        }
        let (mut database, replica) = subscribers::open_database(&shared.config.store)?;
        let home = replica.home()?;
        let others = database.audit_of_others(&replica, &home.file, limit)?;
        let own_name = subscribers::home_name(&shared.config);
        let mut all: Vec<String> = own.iter().map(|line| of_home(line, &own_name)).collect();
        all.extend(others.iter().map(|entry| of_home(&entry.text, &entry.home)));
        // A line begins with its time, in a form that sorts.
        all.sort_by(|a, b| b.split(' ').next().cmp(&a.split(' ').next()));
        all.truncate(limit);
        Ok(all)
    });
    let lines: Result<_, ProblemDetails> =
        read.await.map_err(|_| ProblemDetails::internal("the audit log could not be read"))?;
    TypedReply::json(&lines?)
}

/// A line with the name of its home.
fn of_home(line: &str, home: &str) -> String {
    // Any program may have written the name.
    let home: String = home.chars().filter(|c| !c.is_control() && *c != '"').take(80).collect();
    match line.rsplit_once(" former=") {
        Some((entry, former)) => format!("{entry} home=\"{home}\" former={former}"),
        None => format!("{line} home=\"{home}\""),
    }
}

impl From<subscribers::NoDatabase> for ProblemDetails {
    fn from(e: subscribers::NoDatabase) -> Self {
        match e {
            subscribers::NoDatabase::NotConfigured => ProblemDetails::not_found(
                "this core has its subscribers alone: `store.postgres` names a database that several homes share (docs/postgres.md)",
            ),
            subscribers::NoDatabase::Failed(sentence) => ProblemDetails::unavailable(sentence),
        }
    }
}
