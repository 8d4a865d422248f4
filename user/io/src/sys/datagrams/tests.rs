use super::*;

/// What a peer gets of packets of these sizes and types of service, each with its number, to one of two peers.
fn sent(sizes: &[(usize, u8, usize)]) -> ([Vec<(u8, usize)>; 2], usize) {
    let mut socket = Datagrams::bind_one("127.0.0.1:0".parse().unwrap()).unwrap();
    let peers = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = peers.each_ref().map(|p| p.local_addr().unwrap());
    let packets: Vec<_> =
        (0..).zip(sizes).map(|(n, (octets, tos, peer))| (to[*peer], *tos, vec![n; *octets])).collect();
    let mut done = 0;
    while done < packets.len() {
        let rest = packets.iter().skip(done).map(|(to, tos, octets)| (*to, *tos, octets.as_slice()));
        done += socket.send(rest).unwrap();
    }
    let received = peers.map(|p| {
        p.set_nonblocking(true).unwrap();
        let mut b = [0; 4096];
        std::iter::from_fn(|| p.recv(&mut b).ok().map(|octets| (b[0], octets))).collect()
    });
    let messages = socket.messages(packets.iter().map(|(to, tos, octets)| (*to, *tos, octets.as_slice())));
    (received, messages)
}

#[test]
fn packets_in_a_row_are_one_message_and_arrive_as_they_were_in_order() {
    // Equal ones; a shorter one ends the row; a longer one, another peer, another type of service begin one.
    let all = [(1_400, 0, 0); 20];
    let mixed: Vec<_> = [
        (1_400, 0, 0),
        (1_400, 0, 0),
        (70, 0, 0),
        (70, 0, 0),
        (900, 0, 0),
        (900, 0, 1),
        (900, 0xb8, 1),
        (900, 0xb8, 1),
        (30, 0xb8, 1),
    ]
    .into();
    for (sizes, expected) in [(all.to_vec(), 1), (mixed, 5)] {
        let (received, messages) = sent(&sizes);
        assert_eq!(messages, expected);
        for (peer, received) in received.iter().enumerate() {
            let of_peer = sizes.iter().enumerate().filter(|(_, s)| s.2 == peer);
            assert_eq!(*received, of_peer.map(|(n, s)| (n as u8, s.0)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_message_is_no_longer_than_udp_can_say() {
    let (received, messages) = sent(&[(3_000, 0, 0); 32]);
    assert_eq!((received[0].len(), messages), (32, 2));
}

#[test]
fn datagrams_that_the_kernel_joins_are_cut_again_and_wait_for_packets() {
    let mut from = Datagrams::bind_one("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut to = Datagrams::bind_one("127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = to.socket.local_addr().unwrap();
    let sender = from.socket.local_addr().unwrap();
    // Of each round some that are joined, one that is alone, one that is empty, one that is longer than most.
    let sizes = [vec![1_400; 20], vec![90; 3], vec![10], vec![0], vec![1_800]].concat();
    let packets: Vec<_> = (0..3).flat_map(|_| &sizes).zip(0u8..).map(|(n, i)| vec![i; *n]).collect();
    let mut done = 0;
    while done < packets.len() {
        done += from.send(packets.iter().skip(done).map(|p| (peer, 0, p.as_slice()))).unwrap();
    }
    let mut room: Vec<_> = (0..9).map(|_| Packet::with_room(2048)).collect();
    let (mut received, mut waited) = (Vec::new(), 0);
    loop {
        let mut octets = Vec::new();
        let n = to
            .receive(room.iter_mut(), |i, peer, n| {
                assert_eq!((i, peer), (octets.len(), sender));
                octets.push(n);
            })
            .unwrap();
        assert_eq!(n, octets.len());
        if n == 0 {
            break;
        }
        for (packet, n) in room.iter_mut().zip(octets) {
            packet.received(n);
            received.push(packet.octets().to_vec());
        }
        waited += usize::from(!to.joined.is_empty());
    }
    assert_eq!(received, packets);
    assert!(waited > 3, "the loopback interface hands over what was sent as one message as one");
    assert!(to.joined.octets.is_empty());
}
