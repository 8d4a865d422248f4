//! A body of several parts that is read is read the same when it is written again.
#![no_main]

use whimbrel_sbi_types::multipart::Multipart;

libfuzzer_sys::fuzz_target!(|input: (&str, &[u8])| {
    let (content_type, body) = input;
    for content_type in [content_type, "multipart/related; boundary=b"] {
        if let Ok(read) = Multipart::read(content_type, body) {
            let (content_type, body) = read.write();
            assert_eq!(Multipart::read(&content_type, &body).map(|again| again.json), Ok(read.json));
        }
    }
});
