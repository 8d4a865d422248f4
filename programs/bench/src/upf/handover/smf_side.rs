//! The SMF's side of the one session of a UPF that runs.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::ie::FTeid;
use whimbrel_pfcp::msg::{SessionModificationRequest, SessionModificationResponse};
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::{Config, Input, Outbox, UpfC};
use whimbrel_user_io::{Clock, Handle};

use super::super::smf::{SMF, activation, association, smf_establishment};
use super::SOURCE;

pub(super) struct Smf {
    c: UpfC,
    pub(super) handle: Handle,
    clock: Clock,
    sequence: u32,
    seid: Seid,
    /// The UPF's tunnel, and the UE's address.
    pub(super) teid: Teid,
    pub(super) address: Ipv4Addr,
}

impl Smf {
    /// With a session, whose UE is at this gNB.
    pub(super) fn new(handle: Handle, user: Config, clock: Clock, gnb: IpAddr) -> io::Result<Self> {
        let c = UpfC::new(user, clock()).map_err(|e| io::Error::other(e.to_string()))?;
        let (seid, teid, address) = (Seid(0), Teid(0), Ipv4Addr::UNSPECIFIED);
        let mut it = Self { c, handle, clock, sequence: 1, seid, teid, address };
        it.ask(None, association(1).into())?;
        let answer = it.ask(Some(Seid(0)), smf_establishment(1, true, false).into())?;
        let Message::SessionEstablishmentResponse(r) = answer else {
            return Err(io::Error::other("no session"));
        };
        let teid = r.created_pdrs.iter().find_map(|p| match p.local_f_teid {
            Some(FTeid::Given { teid, .. }) => Some(teid),
            _ => None,
        });
        let address = r.created_pdrs.iter().find_map(|p| p.ue_ip_addresses.first()?.ipv4?.given());
        let (Some(teid), Some(address), Some(up)) = (teid, address, r.up_f_seid) else {
            return Err(io::Error::other("no tunnel"));
        };
        (it.seid, it.teid, it.address) = (up.seid, teid, address);
        it.change(activation(SOURCE, gnb))?;
        Ok(it)
    }

    fn ask(&mut self, seid: Option<Seid>, m: Message) -> io::Result<Message> {
        let octets = m.to_octets(seid, self.sequence);
        self.sequence += 1;
        let mut out = Outbox::default();
        self.c.handle((self.clock)(), Input::Pfcp { peer: SMF, octets: &octets }, &mut out);
        for change in out.changes.drain(..) {
            self.handle.apply(change).map_err(|_| io::Error::other("the queue is full"))?;
        }
        let answer = out.datagrams.pop().ok_or_else(|| io::Error::other("no answer"))?;
        let unreadable = || io::Error::other("the answer cannot be read");
        let frame = Frame::parse(&answer.1).map_err(|_| unreadable())?;
        Message::parse(&frame).map_err(|_| unreadable())
    }

    /// Changes the session's rules. Errors: where there is no answer.
    pub(super) fn change(
        &mut self,
        m: SessionModificationRequest,
    ) -> io::Result<SessionModificationResponse> {
        match self.ask(Some(self.seid), m.into())? {
            Message::SessionModificationResponse(r) => Ok(*r),
            _ => Err(io::Error::other("another answer")),
        }
    }
}
