//! NRF, UDM, PCF and CHF as processes of their own, for `demo --scenario seams`: each is a core that has no gNBs and offers one function to
//! others, over mutual TLS, to requests with an access token of the NRF.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::Value;
use whimbrel_broker_client::{files, now, tls};
use whimbrel_node::client::Client;

use super::open::Process;
use super::{Playground, provision};
use crate::programs::Program;

/// Octets of a quota.
///
/// The next one is asked for when nothing is left, so that of each quota only the last packet passes its end.
const QUOTA: u64 = 1_000_000;

/// A function that the core uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Function {
    Nrf,
    Udm,
    Pcf,
    Chf,
}

impl Function {
    pub(crate) const ALL: [Self; 4] = [Self::Nrf, Self::Udm, Self::Pcf, Self::Chf];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nrf => "NRF",
            Self::Udm => "UDM",
            Self::Pcf => "PCF",
            Self::Chf => "CHF",
        }
    }

    const fn folder(self) -> &'static str {
        match self {
            Self::Nrf => "nrf",
            Self::Udm => "udm",
            Self::Pcf => "pcf",
            Self::Chf => "chf",
        }
    }

    const fn offers(self) -> &'static str {
        match self {
            Self::Nrf => "nrf",
            Self::Udm => "udm, ausf",
            Self::Pcf => "pcf",
            Self::Chf => "chf",
        }
    }

    const fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 0, 21 + self as u8)
    }
}

/// The functions, with the certificates of all.
pub(crate) struct SeamFunctions {
    folder: PathBuf,
    running: Vec<(Function, Process)>,
}

impl SeamFunctions {
    /// Makes keys and certificates. Errors: one sentence.
    pub(crate) fn prepare() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("whimbrel-functions-{}", std::process::id()));
        let made = Self { folder, running: Vec::new() };
        let mut roots = String::new();
        let functions = Function::ALL.map(|function| (function.folder(), function.address()));
        for (name, address) in functions.into_iter().chain([("core", super::CORE)]) {
            let folder = made.folder.join(name);
            fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
            let identity = tls::self_signed(&address.to_string(), now().as_secs())?;
            files::write_public(&folder.join("tls.pem"), &identity.certificate)?;
            files::write_private(&folder.join("tls.key"), &identity.key)?;
            roots += &identity.certificate;
        }
        files::write_public(&made.folder.join("authorities.pem"), &roots)?;
        Ok(made)
    }

    /// The core's configuration of its service-based interfaces.
    pub(crate) fn core_configuration(&self) -> String {
        format!(
            "data_networks: [{{ dnn: internet, dns: [{}], charging: {{ rating_group: 1, requested_octets: {QUOTA}, failure_handling: continue }} }}]\n\
             sbi:\n\
             \x20 address: {}:7777\n\
             \x20 nrf: https://{}:7777\n\
             \x20 access_tokens: true\n\
             \x20 udm: nrf\n\
             \x20 pcf: nrf\n\
             \x20 chf: nrf\n\
             {}",
            super::GATEWAY,
            super::CORE,
            Function::Nrf.address(),
            self.tls("core")
        )
    }

    fn tls(&self, name: &str) -> String {
        let folder = self.folder.display();
        format!(
            "\x20 tls: {{ certificate: {folder}/{name}/tls.pem, key: {folder}/{name}/tls.key, authorities: {folder}/authorities.pem }}\n"
        )
    }

    /// Starts all functions, with the subscribers of the playground at UDM and PCF, and a prepaid account of so many octets for each at the
    /// CHF. Errors: one sentence.
    pub(crate) fn start(&mut self, playground: &Playground, credit: u64) -> Result<(), String> {
        for function in Function::ALL {
            let folder = self.folder.join(function.folder());
            provision(&folder, &playground.subscriptions, &playground.slices)?;
            self.start_one(function, credit)?;
        }
        Ok(())
    }

    /// Starts a function, for the first time or again. Errors: one sentence.
    pub(crate) fn start_one(&mut self, function: Function, credit: u64) -> Result<(), String> {
        let folder = self.folder.join(function.folder());
        let (host, dir, nth) = (function.address(), folder.display(), function as u8);
        let nrf = self.folder.join(Function::Nrf.folder());
        let of_nrf = match function {
            Function::Nrf => String::new(),
            Function::Udm | Function::Pcf | Function::Chf => format!(
                "\x20 nrf: https://{}:7777\n\x20 token_key: {}/whimbrel.nrf.pem\n",
                Function::Nrf.address(),
                nrf.display()
            ),
        };
        let accounts = match function {
            Function::Chf => format!(
                "chf: {{ default_account: prepaid, default_credit: {credit}, grant_octets: {QUOTA}, threshold_percent: 0 }}\n"
            ),
            Function::Nrf | Function::Udm | Function::Pcf => String::new(),
        };
        let yaml = format!(
            "store: {{ path: {dir}/whimbrel.db, key_file: {dir}/whimbrel.key }}\n\
             n2: {{ addresses: [{host}] }}\n\
             n3: {{ address: {host} }}\n\
             n4: {{ node_id: {host} }}\n\
             n6: {{ device: fn{nth}, nat: false, forwarding: false }}\n\
             data_networks: [{{ dnn: internet, ipv4_pool: 10.{}.0.0/16, ipv6_pool: none }}]\n\
             api: {{ address: \"{}\" }}\n\
             {accounts}\
             sbi:\n\
             \x20 address: {host}:7777\n\
             \x20 offer: [{}]\n\
             {of_nrf}{}",
            60 + nth,
            api(function),
            function.offers(),
            self.tls(function.folder()),
        );
        let file = folder.join("whimbrel.yaml");
        fs::write(&file, yaml).map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
        let arguments = ["run", "--config", &file.display().to_string()];
        let mut process = Process::start(function.folder().into(), Program::Core, &arguments, &self.folder)?;
        let client = self.client(function);
        process.until("does not serve", move || client.get::<Value>("/api/v1/status").is_ok())?;
        self.running.push((function, process));
        Ok(())
    }

    /// Kills a function, as `kill -9` does.
    pub(crate) fn kill(&mut self, function: Function) {
        self.running.extract_if(.., |(of, _)| *of == function).for_each(|(_, mut process)| process.kill());
    }

    /// The API of a function's process.
    pub(crate) fn client(&self, function: Function) -> Client {
        let store = self.folder.join(function.folder()).join("whimbrel.db");
        Client::new(api(function)).by_store(&store)
    }

    /// The logs of all functions.
    pub(crate) fn logged(&self) -> String {
        let all =
            self.running.iter().map(|(_, process)| format!("{}:\n{}\n", process.name(), process.logged()));
        all.collect()
    }
}

impl Drop for SeamFunctions {
    fn drop(&mut self) {
        self.running.iter_mut().for_each(|(_, process)| process.kill());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn api(function: Function) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 8170 + 100 * function as u16))
}
