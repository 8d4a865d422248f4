//! An operator that begins to overstate, and the statements of the brokers.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{OpenPlayground, Process};
use crate::programs::Program;

/// Octets and money of a statement, as the broker prints them or the operator checks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) receipts: u64,
    pub(crate) claimed: (u64, u64),
    pub(crate) paid: (u64, u64),
    pub(crate) micros: u64,
}

impl Settled {
    fn of(json: &Value) -> Self {
        let n = |key: &str| json[key].as_u64().unwrap_or(u64::MAX);
        Self {
            receipts: n("receipts"),
            claimed: (n("claimed_ul_octets"), n("claimed_dl_octets")),
            paid: (n("paid_ul_octets"), n("paid_dl_octets")),
            micros: n("micros"),
        }
    }
}

/// Runs a program with arguments. Gives what it prints, as JSON. Errors: what it says.
fn asked(program: Program, arguments: &[&str]) -> Result<Value, String> {
    let mut command = program.command()?;
    let output = run(command.args(arguments))?;
    serde_json::from_slice(&output).map_err(|e| format!("`{} {}`: {e}", program.name(), arguments.join(" ")))
}

fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

impl OpenPlayground {
    /// Has an operator claim so many per cent more than it measures from now on: its core is started again with another configuration.
    pub(crate) fn overstate(&mut self, operator: usize, percent: u32) -> Result<(), String> {
        let folder = self.folder.clone();
        let Some(operator) = self.operators.get_mut(operator) else { return Ok(()) };
        operator.process.stop()?;
        let text = std::fs::read_to_string(&operator.file).map_err(|e| e.to_string())?;
        let text = format!("{text}\x20 overstate: {percent}\n");
        std::fs::write(&operator.file, text).map_err(|e| e.to_string())?;
        let name = format!("{}-lying", operator.process.name);
        let arguments = ["run", "--strict", "--config", &operator.file.display().to_string()];
        operator.process = Process::start(name, Program::Core, &arguments, &folder)?;
        operator.until_ready()
    }

    /// What a broker thinks of an operator, 0 to 100; `None`: it has compared nothing of it.
    pub(crate) fn reputation(&self, broker: usize, operator: usize) -> Result<Option<u64>, String> {
        let file = self.brokers[broker].file.display().to_string();
        let standings = asked(Program::Broker, &["reputation", "--json", "-c", &file])?;
        let id = self.operators[operator].id.to_string();
        let of = standings.as_array().and_then(|all| all.iter().find(|s| s["party"] == id.as_str()));
        Ok(of.and_then(|s| s["reputation"].as_u64()))
    }

    /// A broker's statement for an operator as the broker makes it, and as the operator checks it line by line; and whether the operator
    /// has no receipt that is not in it.
    pub(crate) fn statement(
        &self,
        broker: usize,
        operator: usize,
    ) -> Result<(Settled, Settled, bool), String> {
        let (broker, operator) = (&self.brokers[broker], &self.operators[operator]);
        let name = format!("{}-{}.statement", broker.process.name, operator.process.name);
        let file = self.folder.join(name).display().to_string();
        let (of_broker, of_operator) =
            (broker.file.display().to_string(), operator.file.display().to_string());
        let id = operator.id.to_string();
        let made = asked(Program::Broker, &["statement", &id, "--json", "--out", &file, "-c", &of_broker])?;
        let checked =
            asked(Program::Core, &["open", "verify-statement", &file, "--json", "-c", &of_operator])?;
        let _ = std::fs::remove_file(&file);
        // A receipt that came after the statement is in the next one.
        let is_whole = checked["missing"] == 0;
        Ok((Settled::of(&made), Settled::of(&checked), is_whole))
    }
}
