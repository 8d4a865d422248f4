//! `whimbrel replay-sandbox`, the process that tries inputs for a CPF: it reports which trials did no harm, and exits when its CPF is gone.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use whimbrel_control::{Checkpoint, Envelope, Payload, UeContext, UeId};
use whimbrel_ids::{Instant, Tmsi};
use whimbrel_resilience::{CodeVersion, ToReplaySandbox, Trial};
use whimbrel_sim::default_config;

const UE: UeId = UeId { slot: 3, generation: 1 };

fn sandbox() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command.arg("replay-sandbox").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("the program runs")
}

fn send(sandbox: &mut Child, message: &ToReplaySandbox) {
    write(sandbox.stdin.as_mut().expect("a pipe"), message);
}

fn write(input: &mut impl Write, message: &ToReplaySandbox) {
    let mut octets = Vec::new();
    message.write(&mut octets);
    input.write_all(&(octets.len() as u32).to_be_bytes()).expect("written");
    input.write_all(&octets).expect("written");
}

fn trial(id: u64) -> ToReplaySandbox {
    let mut ue = UeContext::new(UE);
    ue.clock = 4;
    let tick = Envelope {
        code_version: CodeVersion::own().0,
        ue: UE,
        cta_term: 1,
        owner_term: 1,
        clock: 5,
        time: Instant(1),
        seed: [1; 16],
        tmsi: Tmsi(5),
        config_version: 1,
        upfs: Default::default(),
        payload: Payload::Tick,
    };
    ToReplaySandbox::Try(Trial { id, ue: UE, state: Checkpoint::of(&ue), inputs: vec![tick] })
}

#[test]
fn each_trial_that_does_no_harm_is_named_and_the_end_of_input_is_the_end() {
    let mut sandbox = sandbox();
    send(&mut sandbox, &ToReplaySandbox::Configure(Arc::new(default_config())));
    send(&mut sandbox, &trial(9));
    send(&mut sandbox, &trial(10));
    let mut reports = [0; 4 * 12];
    sandbox
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut reports)
        .expect("of each, its begin and its input");
    let reports: Vec<(u8, u8)> = reports.chunks(12).map(|r| (r[7], r[11])).collect();
    assert_eq!(reports, [(9, 0), (9, 1), (10, 0), (10, 1)]);
    drop(sandbox.stdin.take());
    assert!(sandbox.wait().expect("it ends").success());
}

#[test]
fn what_is_no_trial_ends_it_without_an_answer() {
    for octets in [&[0, 0, 0, 2, 9, 9][..], &[0xff; 4]] {
        let mut sandbox = sandbox();
        sandbox.stdin.as_mut().expect("a pipe").write_all(octets).expect("written");
        let mut answers = Vec::new();
        sandbox.stdout.as_mut().expect("a pipe").read_to_end(&mut answers).expect("its end");
        assert!(answers.is_empty());
        assert!(!sandbox.wait().expect("it ends").success());
    }
}

#[test] // as one would that is at an input that does not come to its end, it does not look whether its own input has ended
fn it_does_not_outlive_its_parent() {
    let (input, mut kept) = std::io::pipe().expect("a pipe");
    let mut starts = Command::new("/bin/sh")
        .args(["-c", "exec 3<&0; \"$0\" replay-sandbox <&3 & wait", env!("CARGO_BIN_EXE_whimbrel")])
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell runs");
    let mut output = starts.stdout.take().expect("a pipe");
    write(&mut kept, &ToReplaySandbox::Configure(Arc::new(default_config())));
    write(&mut kept, &trial(9));
    output.read_exact(&mut [0; 2 * 12]).expect("its reports");
    starts.kill().expect("it runs");
    starts.wait().expect("it ends");
    let (ended, ends) = channel();
    std::thread::spawn(move || ended.send(output.read_to_end(&mut Vec::new())));
    assert!(ends.recv_timeout(Duration::from_secs(10)).is_ok(), "it is there still");
    drop(kept);
}
