//! All that is sealed in the database, sealed under a new key.

use tokio_postgres::types::{ToSql, Type};
use whimbrel_store::{DatabaseFailure, DocumentChange, Store, StoreError};

use crate::database::{CHUNK, PostgresDatabase, Session, begin_change, commit, get, one, page, within};
use crate::documents::{all_documents, put_documents};
use crate::failure::failure_of;

impl PostgresDatabase {
    /// Seals all under the key in force of a home's key file, in one transaction, if it is sealed under the former one. Returns how many subscribers and
    /// documents were sealed.
    ///
    /// Errors: [`DatabaseFailure::OtherKey`]; [`StoreError::Unreadable`]; others. Nothing is changed then.
    pub fn seal_again(&mut self, replica: &Store) -> Result<(usize, usize), StoreError> {
        let check = |check: &[u8]| match replica.other_key_than(check) {
            _ if replica.has_key_of(check) => Ok(()),
            DatabaseFailure::FormerKey => Ok(()),
            other => Err(other),
        };
        let key_check = || replica.key_check();
        let subscribers = replica.count()?.try_into().unwrap_or(usize::MAX);
        self.run_checked(within(subscribers), &check, &key_check, async |session| {
            seal_again(session, replica).await
        })
    }
}

async fn seal_again(session: &mut Session, replica: &Store) -> Result<(usize, usize), StoreError> {
    begin_change(session).await?;
    let client = &session.client;
    if replica.has_key_of(&session.key_check) {
        commit(client).await?;
        return Ok((0, 0));
    }
    let (mut after, mut subscribers) = (String::new(), 0);
    loop {
        let rows = page(client, &after, CHUNK).await?;
        let Some(last) = rows.last() else { break };
        after.clone_from(&last.supi);
        subscribers += rows.len();
        let supis: Vec<&str> = rows.iter().map(|row| row.supi.as_str()).collect();
        let keys: Vec<Vec<u8>> =
            rows.iter().map(|row| replica.keys_sealed_again(row)).collect::<Result<_, _>>()?;
        let sql = "UPDATE whimbrel.subscriber s SET keys = n.keys FROM unnest($1::text[], $2::bytea[]) AS n (supi, keys) WHERE s.supi = n.supi";
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&supis, Type::TEXT_ARRAY), (&keys, Type::BYTEA_ARRAY)];
        client.execute_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
    }
    let mut documents: Vec<DocumentChange> = Vec::new();
    for document in all_documents(client).await? {
        let again = replica.document_sealed_again(&document)?;
        documents.push((document.name, Some(again)));
    }
    put_documents(client, &documents, true).await?;
    let check = replica.key_check()?;
    let sql = "UPDATE whimbrel.state SET key_check = $1 RETURNING true";
    get::<bool>(&one(client, sql, &[(&check, Type::BYTEA)]).await?, 0)?;
    commit(client).await?;
    Ok((subscribers, documents.len()))
}
