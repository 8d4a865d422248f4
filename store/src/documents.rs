//! Documents beside the subscribers: users of the console and API tokens, each sealed under the store's key and bound to its name.
//!
//! They take the same way as subscribers: in a replica they are read from the file, and a change of them is made in the shared database.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use zeroize::Zeroizing;

use crate::error::{StoreError, of_sqlite};
use crate::seal::Sealer;
use crate::store::Store;

/// The tables. A program that does not know them does not see them, so they need no layout of their own.
/// `version` rises with each change of a document.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS document (
        name TEXT PRIMARY KEY,
        content BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS document_version (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        version INTEGER NOT NULL
    ) STRICT;
    INSERT INTO document_version VALUES (1, 0) ON CONFLICT DO NOTHING;
";

/// A document as it is stored: the same octets in the shared database and in each replica.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedDocument {
    /// Its kind, a colon, and its name among those of its kind.
    pub name: String,
    /// The content, sealed for this name.
    pub content: Vec<u8>,
}

/// The octets stay out of logs.
impl core::fmt::Debug for SealedDocument {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SealedDocument({})", self.name)
    }
}

/// A change of a document: its name and what it is afterwards; `None`: it is removed.
pub type DocumentChange = (String, Option<Vec<u8>>);

/// All documents of a kind, opened, and the version of the file's documents at that moment.
pub type OpenedDocuments = (i64, Vec<(String, Zeroizing<Vec<u8>>)>);

/// True for a name in the log of changes is that of a document: a SUPI has digits alone.
pub fn is_document(name: &str) -> bool {
    name.contains(':')
}

/// The name that a document is sealed for: no subscriber's name begins like this.
fn context(name: &str) -> Vec<u8> {
    [b"document ".as_slice(), name.as_bytes()].concat()
}

pub(crate) fn make_tables(db: &mut Connection) -> rusqlite::Result<()> {
    let has_tables = |db: &Connection| {
        let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'document_version'";
        db.query_row(sql, [], |row| row.get::<_, bool>(0))
    };
    if has_tables(db)? {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(TABLES)?;
    tx.commit()
}

fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("SELECT version FROM document_version")?.query_row([], |row| row.get(0))
}

pub(crate) fn all(db: &Connection) -> rusqlite::Result<Vec<SealedDocument>> {
    db.prepare_cached("SELECT name, content FROM document ORDER BY name")?
        .query_map([], |row| Ok(SealedDocument { name: row.get(0)?, content: row.get(1)? }))?
        .collect()
}

/// Writes documents as they are sealed, within a transaction.
pub(crate) fn put(tx: &Connection, changes: &[DocumentChange]) -> rusqlite::Result<()> {
    for (name, content) in changes {
        match content {
            Some(content) => tx
                .prepare_cached(
                    "INSERT INTO document VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET content = ?2",
                )?
                .execute(params![name, content])?,
            None => tx.prepare_cached("DELETE FROM document WHERE name = ?1")?.execute([name])?,
        };
    }
    if !changes.is_empty() {
        tx.execute("UPDATE document_version SET version = version + 1", [])?;
    }
    Ok(())
}

/// The same document under the key in force.
pub(crate) fn sealed_again(sealer: &Sealer, document: &SealedDocument) -> Result<Vec<u8>, StoreError> {
    let context = context(&document.name);
    let opened = sealer.open_octets(&context, &document.content);
    let mut plain = opened.ok_or_else(|| StoreError::Unreadable(document.name.clone()))?;
    sealer.seal_octets(&context, &mut plain)
}

impl Store {
    /// A number that rises with each change of a document in this file, by any process.
    pub fn documents_version(&self) -> Result<i64, StoreError> {
        version(&self.db).map_err(|e| self.failed(e))
    }

    /// The documents of a kind, by their names without it.
    ///
    /// Errors: [`StoreError::Unreadable`] for a document under another key.
    pub fn documents(&mut self, kind: &str) -> Result<OpenedDocuments, StoreError> {
        let (at, sealed) = {
            let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Deferred)
                .map_err(|e| self.failed(e))?;
            let read = version(&tx).and_then(|at| Ok((at, all(&tx)?)));
            read.map_err(|e| of_sqlite(&self.path, e))?
        };
        let mut opened = Vec::new();
        for SealedDocument { name, content } in sealed {
            let Some(own) = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix(':')) else { continue };
            let mut plain = self.sealer().open_octets(&context(&name), &content);
            if plain.is_none() && self.reload_key()? {
                // The key was rotated since this process read its file.
                plain = self.sealer().open_octets(&context(&name), &content);
            }
            opened.push((own.to_owned(), plain.ok_or_else(|| StoreError::Unreadable(name.clone()))?));
        }
        Ok((at, opened))
    }

    /// Changes documents, all of them or none; `seen`: the version of the documents that the change was made from.
    ///
    /// Errors: [`StoreError::DocumentsChangedMeanwhile`]: any document was changed since; [`StoreError::Replica`]; [`StoreError::Database`].
    pub fn change_documents(&mut self, seen: i64, changes: Vec<DocumentChange>) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut sealed = Vec::new();
        for (name, content) in changes {
            let content = content.map(Zeroizing::new);
            let content = content.map(|mut plain| self.sealer().seal_octets(&context(&name), &mut plain));
            sealed.push((name, content.transpose()?));
        }
        if self.shared.is_some() {
            return self.change_shared_documents(seen, &sealed);
        }
        self.check_is_own()?;
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        if version(&tx).map_err(failed)? != seen {
            return Err(StoreError::DocumentsChangedMeanwhile);
        }
        put(&tx, &sealed).and_then(|()| tx.commit()).map_err(failed)
    }

    fn change_shared_documents(&mut self, seen: i64, sealed: &[DocumentChange]) -> Result<(), StoreError> {
        if self.replica_position()?.is_none() {
            self.catch_up()?;
        }
        let at = {
            let failed = |e| of_sqlite(&self.path, e);
            let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Deferred).map_err(failed)?;
            if version(&tx).map_err(failed)? != seen {
                return Err(StoreError::DocumentsChangedMeanwhile);
            }
            crate::replica::position(&tx).map_err(failed)?
        };
        let at = at.ok_or_else(|| StoreError::Corrupt { path: self.path.clone() })?;
        let done = self.with_shared(|store, shared| {
            shared.commit_documents(store, &at, sealed)?;
            // Made it is; if it cannot be read back now, the core does so within a second of the database's return.
            let _ = shared.catch_up(store);
            Ok(())
        });
        done.unwrap_or_else(|| Err(StoreError::Replica { path: self.path.clone() }))
    }

    /// The documents as they are sealed, in the order of their names.
    pub fn sealed_documents(&self) -> Result<Vec<SealedDocument>, StoreError> {
        all(&self.db).map_err(|e| self.failed(e))
    }

    /// Adds sealed documents to a file that is no replica. Returns how many were written: those that are there
    /// already are replaced if `replace`, and stay otherwise.
    pub fn put_sealed_documents(
        &mut self,
        rows: &[SealedDocument],
        replace: bool,
    ) -> Result<u64, StoreError> {
        self.check_is_own()?;
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        let mut changes = Vec::new();
        for row in rows {
            let sql = "SELECT 1 FROM document WHERE name = ?1";
            let exists = tx.query_row(sql, [&row.name], |_| Ok(())).optional().map_err(failed)?.is_some();
            if replace || !exists {
                changes.push((row.name.clone(), Some(row.content.clone())));
            }
        }
        put(&tx, &changes).and_then(|()| tx.commit()).map_err(failed)?;
        Ok(changes.len() as u64)
    }

    /// The differences between the documents of this replica and all those of the database.
    pub(crate) fn document_differences(
        &self,
        there: &[SealedDocument],
    ) -> Result<Vec<DocumentChange>, StoreError> {
        let here = self.sealed_documents()?;
        let changed = there.iter().filter(|row| !here.contains(row));
        let gone = here.iter().filter(|own| !there.iter().any(|row| row.name == own.name));
        let changed = changed.map(|row| (row.name.clone(), Some(row.content.clone())));
        Ok(changed.chain(gone.map(|own| (own.name.clone(), None))).collect())
    }
}
