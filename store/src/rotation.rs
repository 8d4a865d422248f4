//! Rotation of the key under which subscribers' keys and documents are sealed.
//!
//! The new key is put in front of the former one in the key file first, where it cannot be lost. From then on all is sealed under the new one, and opened
//! under both, so that a rotation may end at any moment and be finished later. A process that runs reads the key file again when it meets what it cannot open.

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use whimbrel_ids::Supi;

use crate::documents::{self, DocumentChange, SealedDocument, sealed_again};
use crate::error::{StoreError, of_sqlite};
use crate::schema::KEY_CHECK;
use crate::seal::{self, Sealer};
use crate::shared::SealedSubscriber;
use crate::store::Store;

impl Store {
    /// Puts a new key into the key file of this store, in front of the present one.
    pub fn add_key(&self) -> Result<(), StoreError> {
        seal::add_key(&self.key_file)
    }

    /// Removes the former key from the key file of this store. What this file has must not need it.
    ///
    /// Errors: [`StoreError::NeedsFormerKey`] while the file has values under the former key.
    pub fn drop_former_key(&self) -> Result<(), StoreError> {
        match self.is_sealed_with_key()? {
            true => seal::drop_former_key(&self.key_file),
            false => Err(StoreError::NeedsFormerKey { path: self.path.clone() }),
        }
    }

    /// True if the key file has a former key.
    pub fn has_former_key(&self) -> bool {
        self.sealer().has_former()
    }

    /// True if the file says that all in it is sealed under the key in force, and not under the former one.
    pub fn is_sealed_with_key(&self) -> Result<bool, StoreError> {
        let check = self.db.query_row("SELECT sealed FROM key_check", [], |row| row.get::<_, Vec<u8>>(0));
        Ok(self.has_key_of(&check.map_err(|e| self.failed(e))?))
    }

    /// Reads the key file again. Returns whether it has another key in force now, of which this file is.
    pub fn reload_key(&mut self) -> Result<bool, StoreError> {
        let sealer = Sealer::open(&self.key_file, false, &self.path)?;
        if sealer.has_key_of(self.sealer()) && sealer.has_former() == self.sealer().has_former() {
            return Ok(false);
        }
        let check = self.db.query_row("SELECT sealed FROM key_check", [], |row| row.get::<_, Vec<u8>>(0));
        let check = check.map_err(|e| self.failed(e))?;
        let is_of = sealer.open_sealed::<8>(KEY_CHECK.0, &check).is_some_and(|plain| *plain == KEY_CHECK.1);
        if is_of {
            self.set_sealer(sealer);
            self.clear_cache();
        }
        Ok(is_of)
    }

    /// The same keys of a subscriber, sealed under the key in force. Errors: [`StoreError::Unreadable`].
    pub fn keys_sealed_again(&self, row: &SealedSubscriber) -> Result<Vec<u8>, StoreError> {
        keys_sealed_again(self.sealer(), &row.supi, &row.keys)
    }

    /// The same document, sealed under the key in force. Errors: [`StoreError::Unreadable`].
    pub fn document_sealed_again(&self, document: &SealedDocument) -> Result<Vec<u8>, StoreError> {
        sealed_again(self.sealer(), document)
    }

    /// Seals all in this file under the key in force. Returns how many subscribers and documents it has.
    ///
    /// Errors: [`StoreError::Replica`]: the database that is replicated is to be sealed again.
    pub fn seal_again(&mut self) -> Result<(usize, usize), StoreError> {
        self.check_is_own()?;
        let check = self.key_check()?;
        let sealer = self.sealer();
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        let keys = sealed_keys(&tx).map_err(failed)?;
        for (supi, keys) in &keys {
            let again = keys_sealed_again(sealer, supi, keys)?;
            let sql = "UPDATE subscriber SET keys = ?2 WHERE supi = ?1";
            tx.prepare_cached(sql).and_then(|mut s| s.execute(params![supi, again])).map_err(failed)?;
        }
        let mut changes: Vec<DocumentChange> = Vec::new();
        for document in documents::all(&tx).map_err(failed)? {
            changes.push((document.name.clone(), Some(sealed_again(sealer, &document)?)));
        }
        documents::put(&tx, &changes).map_err(failed)?;
        tx.execute("UPDATE key_check SET sealed = ?1", [&check]).map_err(failed)?;
        tx.commit().map_err(failed)?;
        self.clear_cache();
        Ok((keys.len(), changes.len()))
    }

    /// Notes that all in this replica is sealed under the key in force, once that is so. Until then the key file needs the former key.
    pub fn note_key(&mut self) -> Result<(), StoreError> {
        if self.is_sealed_with_key()? {
            return Ok(());
        }
        let check = self.key_check()?;
        let alone = self.sealer().without_former();
        let failed = |e| of_sqlite(&self.path, e);
        let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate).map_err(failed)?;
        let is_open = |(supi, keys): (String, Vec<u8>)| keys_sealed_again(&alone, &supi, &keys).is_ok();
        let mut all = documents::all(&tx).map_err(failed)?.iter().all(|d| sealed_again(&alone, d).is_ok());
        all = all && sealed_keys(&tx).map_err(failed)?.into_iter().all(is_open);
        if all {
            tx.execute("UPDATE key_check SET sealed = ?1", [&check]).map_err(failed)?;
        }
        tx.commit().map_err(failed)
    }
}

fn sealed_keys(db: &Connection) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    db.prepare("SELECT supi, keys FROM subscriber")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn keys_sealed_again(sealer: &Sealer, imsi: &str, keys: &[u8]) -> Result<Vec<u8>, StoreError> {
    let unreadable = || StoreError::Unreadable(format!("imsi-{imsi}"));
    let supi: Supi = imsi.parse().map_err(|_| unreadable())?;
    let (k, operator_code) = sealer.open_keys(supi, keys).ok_or_else(unreadable)?;
    sealer.seal_keys(supi, &k, &operator_code)
}
