//! Masquerading of UEs' addresses: a table of nftables of our own, set by netlink, gone when dropped.

use std::io;
use std::net::IpAddr;

use whimbrel_user::DataNetwork;

use crate::sys::netlink::{Attributes, Netlink, NetlinkRequest};

/// Code points of linux/netfilter/nfnetlink.h and nf_tables.h that `libc` does not have.
pub(super) mod nft {
    pub(in crate::host) const SUBSYSTEM: u16 = 10;
    pub(in crate::host) const BATCH_BEGIN: u16 = 0x10;
    pub(in crate::host) const BATCH_END: u16 = 0x11;
    pub(in crate::host) const NEW_TABLE: u16 = 0;
    pub(in crate::host) const DEL_TABLE: u16 = 2;
    pub(in crate::host) const NEW_CHAIN: u16 = 3;
    pub(in crate::host) const GET_CHAIN: u16 = 4;
    pub(in crate::host) const NEW_RULE: u16 = 6;
    pub(in crate::host) const GET_RULE: u16 = 7;
    pub(in crate::host) const FAMILY_UNSPEC: u8 = 0;
    pub(in crate::host) const FAMILY_INET: u8 = 1;
    pub(in crate::host) const FAMILY_IPV4: u8 = 2;
    pub(in crate::host) const FAMILY_IPV6: u8 = 10;
    pub(in crate::host) const HOOK_POSTROUTING: u32 = 4;
    pub(in crate::host) const PRIORITY_SRCNAT: u32 = 100;
    pub(in crate::host) const REGISTER: u32 = 1;
    pub(in crate::host) const META_OIFNAME: u32 = 7;
    pub(in crate::host) const META_NFPROTO: u32 = 15;
    pub(in crate::host) const CMP_EQ: u32 = 0;
    pub(in crate::host) const CMP_NEQ: u32 = 1;
    pub(in crate::host) const NETWORK_HEADER: u32 = 1;
}

const CHAIN: &str = "postrouting";

/// The table; dropping it removes it from the kernel.
#[derive(Debug)]
pub(crate) struct Nat {
    table: String,
}

impl Nat {
    /// Masquerades what UEs of the networks send out of any interface but their own. A table that a killed program
    /// left is replaced. What was set, in words.
    ///
    /// Errors: of the kernel: `EPERM` without CAP_NET_ADMIN, `EPROTONOSUPPORT` or `EOPNOTSUPP` without nftables.
    pub(crate) fn set_up(networks: &[(&str, &DataNetwork)]) -> io::Result<(Self, Vec<String>)> {
        let done = Self::put(networks)?;
        Ok((Self { table: Self::table_of(networks) }, done))
    }

    /// The name of its table, for these networks.
    pub(crate) fn table_of(networks: &[(&str, &DataNetwork)]) -> String {
        format!("whimbrel-{}", networks.first().map_or("", |(name, _)| name))
    }

    /// Makes the table, which takes the place of one that is there. Returns each rule in words. Errors: as above.
    pub(crate) fn put(networks: &[(&str, &DataNetwork)]) -> io::Result<Vec<String>> {
        let table = Self::table_of(networks);
        remove(&table).ok();
        let mut requests = vec![batch(nft::BATCH_BEGIN)];
        requests.push(request(nft::NEW_TABLE, libc::NLM_F_CREATE).attribute(1, &text(&table)));
        let hook =
            Attributes::default().with(1, &be(nft::HOOK_POSTROUTING)).with(2, &be(nft::PRIORITY_SRCNAT));
        requests.push(
            request(nft::NEW_CHAIN, libc::NLM_F_CREATE)
                .attribute(1, &text(&table))
                .attribute(3, &text(CHAIN))
                .nested(4, hook)
                .attribute(7, &text("nat")),
        );
        let mut done = Vec::new();
        for (name, dn) in networks {
            // What the UPF itself translates has other addresses here.
            let here = dn.nat_pools().next().is_none();
            let ipv4 = dn.all_ipv4_pools().filter(|_| here).map(|p| (IpAddr::V4(p.first().into()), p.prefix));
            let ipv6 = dn
                .all_ipv6_pools()
                .map(|p| (IpAddr::V6(std::net::Ipv6Addr::from_bits(u128::from(p.first()) << 64)), p.prefix));
            for (network, prefix) in ipv4.chain(ipv6) {
                requests.push(masquerade(&table, name, network, prefix));
                done.push(format!("masquerades {network}/{prefix} in the nftables table inet {table}"));
            }
        }
        requests.push(batch(nft::BATCH_END));
        Netlink::open(libc::NETLINK_NETFILTER)?.ask(requests)?;
        Ok(done)
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        // Nothing more can be done where the kernel refuses; the next start replaces the table.
        remove(&self.table).ok();
    }
}

fn remove(table: &str) -> io::Result<()> {
    let request = request(nft::DEL_TABLE, 0).attribute(1, &text(table));
    Netlink::open(libc::NETLINK_NETFILTER)?.ask(vec![batch(nft::BATCH_BEGIN), request, batch(nft::BATCH_END)])
}

/// struct nfgenmsg: family, version, resource.
fn fixed(family: u8, resource: u16) -> [u8; 4] {
    let [a, b] = resource.to_be_bytes();
    [family, 0, a, b]
}

fn batch(kind: u16) -> NetlinkRequest {
    NetlinkRequest::new(kind, 0, &fixed(nft::FAMILY_UNSPEC, nft::SUBSYSTEM))
}

fn request(kind: u16, flags: libc::c_int) -> NetlinkRequest {
    NetlinkRequest::new(nft::SUBSYSTEM << 8 | kind, flags | libc::NLM_F_ACK, &fixed(nft::FAMILY_INET, 0))
}

pub(super) fn text(s: &str) -> Vec<u8> {
    [s.as_bytes(), &[0]].concat()
}

fn be(v: u32) -> [u8; 4] {
    v.to_be_bytes()
}

/// An expression of a rule, as an element of its list.
fn expression(list: Attributes, name: &str, data: Attributes) -> Attributes {
    list.nested(1, Attributes::default().with(1, &text(name)).nested(2, data))
}

fn meta(list: Attributes, key: u32) -> Attributes {
    expression(list, "meta", Attributes::default().with(2, &be(key)).with(1, &be(nft::REGISTER)))
}

fn compare(list: Attributes, op: u32, value: &[u8]) -> Attributes {
    let value = Attributes::default().with(1, value);
    let data = Attributes::default().with(1, &be(nft::REGISTER)).with(2, &be(op)).nested(3, value);
    expression(list, "cmp", data)
}

/// The rule: of that family, from that network, not back into the device: masquerade.
fn masquerade(table: &str, device: &str, network: IpAddr, prefix: u8) -> NetlinkRequest {
    let (family, offset, address) = match network {
        IpAddr::V4(a) => (nft::FAMILY_IPV4, 12, a.octets().to_vec()),
        IpAddr::V6(a) => (nft::FAMILY_IPV6, 8, a.octets().to_vec()),
    };
    let len = address.len() as u32;
    let mask: Vec<u8> = (0..len)
        .map(|i| {
            let bits = u32::from(prefix).saturating_sub(i * 8).min(8);
            (0xff00u32 >> bits) as u8
        })
        .collect();
    let mut name = [0u8; 16];
    name[..device.len().min(15)].copy_from_slice(&device.as_bytes()[..device.len().min(15)]);
    let reg = || Attributes::default().with(1, &be(nft::REGISTER));
    let mut list = meta(Attributes::default(), nft::META_NFPROTO);
    list = compare(list, nft::CMP_EQ, &[family]);
    list = expression(
        list,
        "payload",
        reg().with(2, &be(nft::NETWORK_HEADER)).with(3, &be(offset)).with(4, &be(len)),
    );
    let zero = vec![0; address.len()];
    list = expression(
        list,
        "bitwise",
        reg()
            .with(2, &be(nft::REGISTER))
            .with(3, &be(len))
            .nested(4, Attributes::default().with(1, &mask))
            .nested(5, Attributes::default().with(1, &zero)),
    );
    list = compare(list, nft::CMP_EQ, &address);
    list = meta(list, nft::META_OIFNAME);
    list = compare(list, nft::CMP_NEQ, &name);
    list = expression(list, "masq", Attributes::default());
    request(nft::NEW_RULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND)
        .attribute(1, &text(table))
        .attribute(2, &text(CHAIN))
        .nested(4, list)
}
