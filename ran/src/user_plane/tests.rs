//! The stack against another one that acts as the network: a host with echo, a DNS server and a web server.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{HardwareAddress, IpCidr};
use whimbrel_ids::Instant;

use super::device::Queues;
use super::{Addresses, Stack, Task, TaskError, TaskOutcome};

const NOW: Instant = Instant(1_800_000_000_000_000);

struct Host {
    device: Queues,
    interface: Interface,
    sockets: SocketSet<'static>,
    dns: SocketHandle,
    web: SocketHandle,
}

impl Host {
    fn new(address: IpAddr) -> Self {
        let mut device = Queues::new(1400);
        let mut interface = Interface::new(
            Config::new(HardwareAddress::Ip),
            &mut device,
            StackInstant::from_micros(NOW.0 as i64),
        );
        interface.update_ip_addrs(|list| list.push(IpCidr::new(address.into(), 0)).unwrap());
        let mut sockets = SocketSet::new(Vec::new());
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 2048]);
        let mut dns = udp::Socket::new(buffer(), buffer());
        dns.bind(53).unwrap();
        let dns = sockets.add(dns);
        let buffer = || tcp::SocketBuffer::new(vec![0; 8192]);
        let mut web = tcp::Socket::new(buffer(), buffer());
        web.listen(80).unwrap();
        let web = sockets.add(web);
        Self { device, interface, sockets, dns, web }
    }

    fn poll(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let time = StackInstant::from_micros(now.0 as i64);
        self.interface.poll(time, &mut self.device, &mut self.sockets);
        let dns = self.sockets.get_mut::<udp::Socket<'_>>(self.dns);
        if let Ok((query, from)) = dns.recv() {
            let mut answer = query.to_vec();
            let known = query.windows(7).any(|w| w == b"example");
            answer[2] = 0x81;
            if known {
                answer[7] = 1;
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
            } else {
                answer[3] = 3;
            }
            dns.send_slice(&answer, from.endpoint).unwrap();
        }
        let web = self.sockets.get_mut::<tcp::Socket<'_>>(self.web);
        if web.can_recv() {
            let asked = web.recv(|o| (o.len(), o.to_vec())).unwrap();
            assert!(asked.starts_with(b"GET /index HTTP/1.1\r\nHost: example.test\r\n"));
            web.send_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n").unwrap();
            web.send_slice(&[b'x'; 6000]).unwrap();
            web.close();
        }
        self.interface.poll(time, &mut self.device, &mut self.sockets);
        self.device.to_send.drain(..).collect()
    }
}

fn run(stack: &mut Stack, host: &mut Host, task: Task) -> Result<TaskOutcome, TaskError> {
    let mut now = NOW;
    stack.start(now, task);
    for _ in 0..1000 {
        let mut sent = Vec::new();
        if let Some(outcome) = stack.poll(now, &mut |p| sent.push(p)) {
            return outcome;
        }
        sent.iter().for_each(|p| host.device.receive(p));
        let answers = host.poll(now);
        if answers.is_empty() && sent.is_empty() {
            now =
                stack.next_deadline(now).expect("a task has a deadline").max(now + Duration::from_millis(1));
        }
        answers.iter().for_each(|p| stack.receive(p));
    }
    panic!("no end");
}

fn v4() -> (Stack, Host) {
    let addresses = Addresses { ipv4: Some([10, 45, 0, 2].into()), interface_id: None };
    (Stack::new(NOW, addresses, Some(1400), 7), Host::new([192, 0, 2, 1].into()))
}

#[test]
fn ping_resolve_and_fetch_over_ipv4() {
    let (mut stack, mut host) = v4();
    let to: IpAddr = [192, 0, 2, 1].into();
    assert_eq!(run(&mut stack, &mut host, Task::Ping { to }), Ok(TaskOutcome::Pong));
    let resolve = |name: &str| Task::Resolve { name: name.into(), server: to, ipv6: false };
    assert_eq!(run(&mut stack, &mut host, resolve("example.test")), Ok(TaskOutcome::Resolved(vec![to])));
    assert_eq!(run(&mut stack, &mut host, resolve("other.test")), Err(TaskError::NoSuchName(3)));
    let (host_name, path) = ("example.test".into(), "/index".into());
    let fetch = Task::Fetch { to, port: 80, host: host_name, path };
    assert_eq!(run(&mut stack, &mut host, fetch), Ok(TaskOutcome::Fetched { status: 200, octets: 6000 }));
}

#[test]
fn what_does_not_answer_or_refuses() {
    let (mut stack, mut host) = v4();
    let to: IpAddr = [192, 0, 2, 9].into();
    assert_eq!(run(&mut stack, &mut host, Task::Ping { to }), Err(TaskError::TimedOut));
    let fetch = Task::Fetch { to: [192, 0, 2, 1].into(), port: 81, host: "h".into(), path: "/".into() };
    assert_eq!(run(&mut stack, &mut host, fetch), Err(TaskError::Reset));
    let to = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert_eq!(run(&mut stack, &mut host, Task::Ping { to }), Err(TaskError::NoAddress));
}

#[test] // TS 23.501 §5.8.2.2.3: the prefix by router advertisement, then traffic from an address in it
fn ipv6_by_router_advertisement() {
    let id = [0, 0, 0, 0, 0, 0, 0, 9];
    let addresses = Addresses { ipv4: None, interface_id: Some(id) };
    let mut stack = Stack::new(NOW, addresses, None, 7);
    stack.start(NOW, Task::SolicitRouter);
    let mut sent = Vec::new();
    assert_eq!(stack.poll(NOW, &mut |p| sent.push(p)), None);
    assert_eq!((sent.len(), sent[0][40]), (1, 133));
    stack.receive(&super::router::testing::advertisement());
    let Some(Ok(TaskOutcome::Router(m))) = stack.poll(NOW, &mut |_| {}) else { panic!("no prefix") };
    assert_eq!(m.prefix, Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 0));
    let to = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let mut host = Host::new(to.into());
    assert_eq!(run(&mut stack, &mut host, Task::Ping { to: to.into() }), Ok(TaskOutcome::Pong));
}
