//! Documents beside the subscribers: users of the console and API tokens, sealed.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use whimbrel_store::{DocumentChange, SealedDocument, Store, StoreError};

use crate::database::{PostgresDatabase, begin_change, commit, get, within};
use crate::failure::failure_of;

/// Documents that are read at once: users and tokens have a bound of some hundreds each.
const DOCUMENTS_MAX: i64 = 4_096;

/// All documents of the database.
pub(crate) async fn all_documents(client: &Client) -> Result<Vec<SealedDocument>, StoreError> {
    let sql = "SELECT name, content FROM whimbrel.document ORDER BY name LIMIT $1";
    let rows = client.query_typed(sql, &[(&DOCUMENTS_MAX, Type::INT8)]).await.map_err(|e| failure_of(&e))?;
    rows.iter().map(|row| Ok(SealedDocument { name: get(row, 0)?, content: get(row, 1)? })).collect()
}

/// Writes or removes documents within a transaction; returns how many were written.
pub(crate) async fn put_documents(
    client: &Client,
    changes: &[DocumentChange],
    replace: bool,
) -> Result<u64, StoreError> {
    let gone: Vec<&str> =
        changes.iter().filter(|(_, to)| to.is_none()).map(|(name, _)| name.as_str()).collect();
    let there = changes.iter().filter_map(|(name, to)| Some((name.as_str(), to.as_deref()?)));
    let (names, contents): (Vec<&str>, Vec<&[u8]>) = there.unzip();
    if !gone.is_empty() {
        let sql = "DELETE FROM whimbrel.document WHERE name = ANY ($1)";
        client.execute_typed(sql, &[(&gone, Type::TEXT_ARRAY)]).await.map_err(|e| failure_of(&e))?;
    }
    let on_conflict = if replace { "DO UPDATE SET content = excluded.content" } else { "DO NOTHING" };
    let sql = format!(
        "INSERT INTO whimbrel.document (name, content) SELECT * FROM unnest($1::text[], $2::bytea[]) ON CONFLICT (name) {on_conflict}"
    );
    let values: [(&(dyn ToSql + Sync), Type); 2] =
        [(&names, Type::TEXT_ARRAY), (&contents, Type::BYTEA_ARRAY)];
    client.execute_typed(&sql, &values).await.map_err(|e| failure_of(&e).into())
}

impl PostgresDatabase {
    /// All documents as they are sealed.
    pub fn sealed_documents(&mut self, source: &Store) -> Result<Vec<SealedDocument>, StoreError> {
        self.run(within(0), source, async |session| all_documents(&session.client).await)
    }

    /// Writes documents of a file as they are: those that are there already are replaced, or stay if not `replace`. Returns how many were written.
    pub fn put_sealed_documents(
        &mut self,
        source: &Store,
        rows: &[SealedDocument],
        replace: bool,
    ) -> Result<u64, StoreError> {
        let rows: Vec<DocumentChange> =
            rows.iter().map(|row| (row.name.clone(), Some(row.content.clone()))).collect();
        self.run(within(rows.len()), source, async |session| {
            let client = &session.client;
            begin_change(session).await?;
            let written = put_documents(client, &rows, replace).await?;
            commit(client).await?;
            Ok(written)
        })
    }
}
