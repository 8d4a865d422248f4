//! Export: all subscribers as a list that an import can read.

use std::io::Write;

use crate::csv::quoted;
use crate::error::StoreError;
use crate::import::Format;
use crate::record::{SubscriberRecord, WithSecrets};
use crate::store::{PAGE_MAX, Store};
use crate::text::to_hex;

/// Whether an export contains the subscribers' keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    /// It does not, and cannot be imported.
    Omit,
    /// It does: a reader of it can clone every USIM.
    Include,
}

impl Store {
    /// Writes all subscribers in the order of their SUPIs' digits, as of one moment; returns how many.
    pub fn export(
        &mut self,
        out: &mut dyn Write,
        format: Format,
        secrets: Secrets,
    ) -> Result<u64, StoreError> {
        // A read transaction: what others commit meanwhile is not seen.
        self.db.execute_batch("BEGIN").map_err(|e| self.failed(e))?;
        let written = self.export_in_transaction(out, format, secrets);
        self.db.execute_batch("COMMIT").map_err(|e| self.failed(e))?;
        written
    }

    fn export_in_transaction(
        &mut self,
        out: &mut dyn Write,
        format: Format,
        secrets: Secrets,
    ) -> Result<u64, StoreError> {
        let (mut count, mut after) = (0, None);
        match (format, secrets) {
            (Format::Json, _) => out.write_all(b"[")?,
            (Format::Csv, Secrets::Include) => {
                out.write_all(
                    b"supi,k,op,opc,top,topc,amf,algorithm,auth,sqn_offset,status,msisdn,subscription\n",
                )?;
            }
            (Format::Csv, Secrets::Omit) => {
                out.write_all(b"supi,amf,algorithm,auth,sqn_offset,status,msisdn,subscription\n")?;
            }
        }
        loop {
            let page = self.list(after, PAGE_MAX)?;
            let Some(last) = page.last() else { break };
            after = Some(last.supi);
            for record in &page {
                match format {
                    Format::Json => {
                        out.write_all(if count == 0 { b"\n" } else { b",\n" })?;
                        json(out, record, secrets)?;
                    }
                    Format::Csv => csv(out, record, secrets)?,
                }
                count += 1;
            }
        }
        if format == Format::Json {
            out.write_all(b"\n]\n")?;
        }
        out.flush()?;
        Ok(count)
    }
}

fn json(out: &mut dyn Write, record: &SubscriberRecord, secrets: Secrets) -> Result<(), StoreError> {
    let written = match secrets {
        Secrets::Include => serde_json::to_writer(out, &WithSecrets(record)),
        Secrets::Omit => serde_json::to_writer(out, record),
    };
    written.map_err(|e| StoreError::Io(e.into()))
}

fn csv(out: &mut dyn Write, record: &SubscriberRecord, secrets: Secrets) -> Result<(), StoreError> {
    write!(out, "{},", record.supi.imsi())?;
    if secrets == Secrets::Include {
        let k = to_hex(record.k.octets());
        let (name, octets) = record.operator_code.field();
        write!(out, "{k},")?;
        for column in ["op", "opc", "top", "topc"] {
            let code = if column == name { to_hex(octets) } else { String::new() };
            write!(out, "{code},")?;
        }
    }
    let subscription = serde_json::to_string(&*record.subscription).map_err(|e| StoreError::Io(e.into()))?;
    writeln!(
        out,
        "{},{},{},{},{},{},{}",
        to_hex(&record.amf.0),
        record.algorithm,
        record.auth,
        record.sqn_offset.value(),
        record.status,
        record.msisdn.as_ref().map_or("", |m| m.digits()),
        quoted(&subscription),
    )?;
    Ok(())
}
