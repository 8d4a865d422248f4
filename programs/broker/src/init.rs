//! `whimbrel-broker init`: a folder with all that a broker needs but an authority's certificate.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use whimbrel_broker_client::{PORT, files, hex, now, tls};
use whimbrel_cli::{Done, print};
use whimbrel_open::id::Domain;

#[derive(Args)]
pub(crate) struct Options {
    /// The broker's domain: the realm of its users and the name in its TLS certificate.
    #[arg(long, value_name = "DOMAIN")]
    domain: Domain,
    /// The folder; it is made if it is not there.
    folder: PathBuf,
}

pub(crate) fn run(options: &Options) -> Done {
    let Options { domain, folder } = options;
    let folder = std::path::absolute(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    fs::create_dir_all(&folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
    let at = |name: &str| folder.join(name);
    let key = files::make_key(&at("broker.key"))?;
    let made = tls::self_signed(domain.as_str(), now().as_secs())?;
    files::write_public(&at("tls.pem"), &made.certificate)?;
    files::write_private(&at("tls.key"), &made.key)?;
    let dir = folder.display();
    let yaml = format!(
        "# A broker (docs/open.md). `whimbrel-broker config` prints all keys with their defaults.\n\
         domain: {domain}\n\
         key_file: \"{dir}/broker.key\"\n\
         certificate: \"{dir}/broker.cert\"\n\
         store: \"{dir}/broker.db\"\n\
         listen: \"0.0.0.0:{PORT}\"\n\
         tls: {{ certificate: \"{dir}/tls.pem\", key: \"{dir}/tls.key\" }}\n\
         # Public keys of the authorities whose certificates of operators are believed.\n\
         authorities: []\n"
    );
    files::write_public(&at("broker.yaml"), &yaml)?;
    let public = hex(&key.verifying_key().octets());
    print(&format!(
        "{dir}/broker.yaml is written, with a new key and a self-signed TLS certificate.\n\
         1. Have an authority certify the public key; the result is {dir}/broker.cert:\n   \
         whimbrel open certify --authority AUTHORITY.key --broker {domain} --public-key {public} --out broker.cert\n\
         2. Write the authority's own public key into `authorities` of broker.yaml.\n\
         3. Replace tls.pem and tls.key by those of a public TLS authority, or give tls.pem to operators (`open.tls_roots`).\n\
         4. whimbrel-broker user add NAME -c {dir}/broker.yaml; whimbrel-broker run -c {dir}/broker.yaml\n"
    ))
}
