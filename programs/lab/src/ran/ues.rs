//! The UEs of `whimbrel-lab ran`: their SIMs, and the list of subscribers that a core needs for them.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use whimbrel_ids::{PlmnId, SNssai, Supi};
use whimbrel_nas::ie::UeSecurityCapability;
use whimbrel_nas::mm::MessageType;
use whimbrel_node::config::value::unhex;
use whimbrel_node::subscribers::is_of;
use whimbrel_ran::fleet::{self, ProvisionedUe};
use whimbrel_ran::scenario::{Scenario, Step};
use whimbrel_ran::ue::{Faults, Profile, SuciSource, UeConfig};
use whimbrel_security::{HomeNetworkPublicKey, LongTermKey, Opc, UsimSqn};
use whimbrel_store::{OperatorCode, StoreError, SubscriberRecord};

/// Options of UEs.
#[derive(Args)]
#[command(next_help_heading = "UEs")]
pub(super) struct UeOptions {
    /// IMSI of the first UE; the next ones count up.
    #[arg(long, value_name = "IMSI", default_value = "999700000000001")]
    imsi: Supi,
    /// Key K of the one UE, 32 hexadecimal digits. Other users of this host can see it while the command runs.
    #[arg(long, value_name = "HEX", requires = "opc", conflicts_with = "subscribers")]
    k: Option<String>,
    /// OPc of the one UE.
    #[arg(long, value_name = "HEX", requires = "k")]
    opc: Option<String>,
    /// Read IMSIs and keys from this CSV file, in the format of `whimbrel subscriber import`.
    #[arg(long, value_name = "FILE.csv")]
    subscribers: Option<PathBuf>,
    /// Without --k and --subscribers, derive the keys of all UEs from this number; they are not secret.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Slices that the UEs request; default: those of the gNBs.
    #[arg(long, value_name = "SLICE,…", value_delimiter = ',')]
    slices: Vec<SNssai>,
    /// SUCI protection scheme.
    #[arg(long, default_value = "null", requires_ifs = [("A", "home_network_key"), ("B", "home_network_key")])]
    suci: Suci,
    /// Public key of the home network in hexadecimal digits, for --suci A or B.
    #[arg(long, value_name = "HEX")]
    home_network_key: Option<String>,
    /// Identifier of that key.
    #[arg(long, value_name = "N", default_value_t = 1)]
    home_network_key_id: u8,
    /// Integrity algorithms of the UEs, by number.
    #[arg(long, value_name = "NIA,…", value_delimiter = ',', default_value = "1,2,3", value_parser = clap::value_parser!(u8).range(0..8))]
    nia: Vec<u8>,
    /// Ciphering algorithms of the UEs, by number.
    #[arg(long, value_name = "NEA,…", value_delimiter = ',', default_value = "0,1,2,3", value_parser = clap::value_parser!(u8).range(0..8))]
    nea: Vec<u8>,
    /// Largest jump of SQN that the SIMs accept, instead of 2^28 (TS 33.102 Annex C.3); with 0 they accept no SQN.
    #[arg(long, value_name = "N")]
    sqn_delta: Option<u64>,
    /// Messages of the AMF that the UEs ignore, as if they could not decipher them.
    #[arg(long, value_name = "MESSAGE,…", value_delimiter = ',')]
    ignore: Vec<Ignored>,
}

/// A message of the AMF that a UE can be made to ignore.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Ignored {
    AuthenticationRequest,
    SecurityModeCommand,
    RegistrationAccept,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Suci {
    #[value(name = "null")]
    Null,
    #[value(name = "A")]
    A,
    #[value(name = "B")]
    B,
}

impl UeOptions {
    /// Whether the command line names one UE's key.
    pub(super) fn lone(&self) -> bool {
        self.k.is_some()
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The slices that the UEs ask for.
    pub(super) fn slices<'a>(&'a self, of_gnbs: &'a [SNssai]) -> &'a [SNssai] {
        if self.slices.is_empty() { of_gnbs } else { &self.slices }
    }
}

/// A UE, and its keys for the list of subscribers.
pub(super) struct Ue {
    pub(super) config: UeConfig,
    subscription: ProvisionedUe,
}

/// The UEs. Errors: one sentence.
pub(super) fn ues(
    options: &UeOptions,
    plmn: PlmnId,
    count: u32,
    of_gnbs: &[SNssai],
) -> Result<Vec<Ue>, String> {
    let subscriptions = subscriptions(options, count)?;
    let mut profile = Profile::new(plmn, options.slices(of_gnbs).to_vec());
    let bits = |ids: &[u8]| ids.iter().fold(0, |bits, id| bits | 0x80 >> id);
    let (nea, nia) = (bits(&options.nea), bits(&options.nia));
    profile.security_capability = UeSecurityCapability::with_eps(nea, nia, nea, nia);
    profile.home_plmn = home_of(plmn, options.imsi);
    profile.faults = faults(&options.ignore);
    let profile = Arc::new(profile);
    let key = home_network_key(options)?;
    let ue = |subscription: ProvisionedUe| {
        let (k, opc) = subscription.key();
        let suci = key.as_ref().map_or(SuciSource::Null, |key| SuciSource::Concealed {
            key: key.clone(),
            key_id: options.home_network_key_id,
            seed: ephemeral(options.seed, subscription.supi),
        });
        let config = UeConfig {
            profile: profile.clone(),
            supi: subscription.supi,
            pei: subscription.pei,
            k,
            opc,
            sqn: options.sqn_delta.map_or_else(UsimSqn::default, |delta| UsimSqn::new(delta, None)),
            suci,
        };
        Ue { config, subscription }
    };
    Ok(subscriptions.into_iter().map(ue).collect())
}

fn faults(ignored: &[Ignored]) -> Option<Box<Faults>> {
    let ignore = ignored.iter().map(|message| match message {
        Ignored::AuthenticationRequest => (MessageType::AuthenticationRequest, u32::MAX),
        Ignored::SecurityModeCommand => (MessageType::SecurityModeCommand, u32::MAX),
        Ignored::RegistrationAccept => (MessageType::RegistrationAccept, u32::MAX),
    });
    let faults = Faults { ignore: ignore.collect(), ..Faults::default() };
    (!ignored.is_empty()).then(|| Box::new(faults))
}

/// The network whose digits begin the IMSI: the one that the UEs select, or that of the first five digits.
fn home_of(plmn: PlmnId, imsi: Supi) -> PlmnId {
    if is_of(imsi, plmn) {
        return plmn;
    }
    imsi.imsi().get(..5).and_then(|digits| digits.parse().ok()).unwrap_or(plmn)
}

fn subscriptions(options: &UeOptions, count: u32) -> Result<Vec<ProvisionedUe>, String> {
    let seed = wide(options.seed);
    if let Some(file) = &options.subscribers {
        let opened = whimbrel_files::open_bounded(file, whimbrel_files::LIST_OCTETS_MAX)
            .map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
        let mut listed = listed(BufReader::new(opened)).map_err(|e| format!("{}: {e}", file.display()))?;
        if (listed.len() as u64) < u64::from(count) {
            return Err(format!(
                "{} lists {} subscribers, and {count} UEs are asked for: add lines, or name --ues {}",
                file.display(),
                listed.len(),
                listed.len()
            ));
        }
        listed.truncate(count as usize);
        return Ok(listed);
    }
    if let (Some(k), Some(opc)) = (&options.k, &options.opc) {
        if count != 1 {
            return Err(format!(
                "one key is named and {count} UEs are asked for: name their keys in a list with --subscribers"
            ));
        }
        let mut one = ProvisionedUe::derive(&seed, options.imsi);
        one.k = key(k).ok_or("--k: write 32 hexadecimal digits")?;
        one.opc = key(opc).ok_or("--opc: write 32 hexadecimal digits")?;
        return Ok(vec![one]);
    }
    let all = fleet::subscriptions(&seed, options.imsi, count);
    if (all.len() as u64) < u64::from(count) {
        return Err(format!("--imsi: there are no {count} IMSIs from {} on", options.imsi.imsi()));
    }
    Ok(all)
}

fn key(hex: &str) -> Option<[u8; 16]> {
    unhex(hex.trim())?.try_into().ok()
}

/// Subscribers of a list. Errors: the line, and what is wrong there.
fn listed(list: impl BufRead) -> Result<Vec<ProvisionedUe>, String> {
    let records = whimbrel_store::read_csv(list).map_err(|e| match e {
        StoreError::Import(lines) => lines.iter().map(ToString::to_string).collect(),
        e => e.to_string(),
    })?;
    let one = |record: SubscriberRecord| {
        let (k, opc) = match (record.k, record.operator_code) {
            (LongTermKey::K128(k), OperatorCode::Opc(opc)) => (k, opc),
            (LongTermKey::K128(k), OperatorCode::Op(op)) => {
                let opc = Opc::derive(&k, &op);
                (k, opc)
            }
            _ => return Err(format!("{}: the SIMs of emulated UEs have Milenage alone", record.supi)),
        };
        let mut subscription = ProvisionedUe::derive(&[0; 32], record.supi);
        (subscription.k, subscription.opc) = (*k.octets(), *opc.octets());
        Ok(subscription)
    };
    records.into_iter().map(one).collect()
}

fn home_network_key(options: &UeOptions) -> Result<Option<Arc<HomeNetworkPublicKey>>, String> {
    let hex = options.home_network_key.as_deref().unwrap_or_default().trim();
    let key = match options.suci {
        Suci::Null => return Ok(None),
        Suci::A => {
            let octets = unhex(hex).and_then(|o| <[u8; 32]>::try_from(o).ok());
            octets.map(HomeNetworkPublicKey::profile_a).ok_or("64 hexadecimal digits")
        }
        Suci::B => {
            let key = unhex(hex).and_then(|o| HomeNetworkPublicKey::profile_b(&o).ok());
            key.ok_or("a point of secp256r1, 66 hexadecimal digits if compressed")
        }
    };
    key.map(|k| Some(Arc::new(k)))
        .map_err(|form| format!("--home-network-key: a key of this profile is {form}"))
}

/// What a UE's ephemeral keys are drawn from: of each UE its own, and not its subscriber key.
fn ephemeral(seed: u64, supi: Supi) -> [u8; 32] {
    let drawn = ProvisionedUe::derive(&wide(!seed), supi);
    let mut octets = [0; 32];
    octets[..16].copy_from_slice(&drawn.k);
    octets[16..].copy_from_slice(&drawn.opc);
    octets
}

fn wide(seed: u64) -> [u8; 32] {
    let mut octets = [0; 32];
    octets[..8].copy_from_slice(&seed.to_be_bytes());
    octets
}

/// Writes the list of subscribers that a core needs for these UEs. It holds keys: only its owner may read it.
pub(super) fn write(file: &Path, ues: &[Ue], scenario: &Scenario, slices: &[SNssai]) -> Result<(), String> {
    let slice = slices.first().map(ToString::to_string).unwrap_or_default();
    let dnns = dnns(scenario).join(";");
    let mut csv = String::from("supi,k,opc,slice,dnn\n");
    for Ue { subscription: s, .. } in ues {
        let _ = writeln!(csv, "{},{},{},{slice},{dnns}", s.supi, hex(&s.k), hex(&s.opc));
    }
    let opened = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    let written = opened.and_then(|mut f| f.write_all(csv.as_bytes()));
    written.map_err(|e| format!("{} cannot be written: {e}", file.display()))
}

/// The data networks that the steps ask for, each once; empty: the network's default.
fn dnns(scenario: &Scenario) -> Vec<String> {
    let mut dnns = Vec::new();
    for step in &scenario.steps {
        if let Step::Session(session) = step
            && let Some(dnn) = &session.dnn
            && !dnns.contains(dnn)
        {
            dnns.push(dnn.clone());
        }
    }
    dnns
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut s, o| {
        let _ = write!(s, "{o:02x}");
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_subscribers_is_read_as_the_store_reads_it() {
        let (k, op) = ("465b5ce8b199b49faa5f0a2ee238a6bc", "cdc202d5123e20f62b6d676ac72cb318");
        let opc = "cd63cb71954a9f4e48a5994e37a02baf";
        let text =
            format!("# test SIMs\nOPC;IMSI;ICCID;OP;Ki\n{opc};999700000000007;89;;{k}\n;999701;;{op};{k}\n");
        let list = listed(text.as_bytes()).unwrap();
        assert_eq!(list[0].supi.imsi(), "999700000000007");
        assert_eq!((Some(list[0].k), Some(list[0].opc)), (key(k), key(opc)));
        // TS 35.206 §8.2: OPc of OP.
        assert_eq!((list[1].k, list[1].opc), (list[0].k, list[0].opc));
    }

    #[test]
    fn what_is_wrong_in_a_list_is_named_with_its_line() {
        let e = listed(&b"supi,k,opc\n\n999700000000001,12,34\n"[..]).unwrap_err();
        assert_eq!(e, "line 3: opc must be 32 hexadecimal digits");
        let tuak = format!("supi,k,topc\n999701,{},{}\n", "0".repeat(32), "0".repeat(64));
        assert!(listed(tuak.as_bytes()).unwrap_err().contains("Milenage"));
    }

    #[test]
    fn the_home_network_is_that_of_the_imsi() {
        let (plmn, other) = ("999/70".parse().unwrap(), "001/01".parse().unwrap());
        let imsi: Supi = "999700000000001".parse().unwrap();
        assert_eq!(home_of(plmn, imsi), plmn);
        assert_eq!(home_of(other, imsi), plmn);
    }
}
