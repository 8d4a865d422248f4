//! Headers of any octets are read or skipped.
#![no_main]

use hyper::HeaderMap;
use hyper::header::{HeaderValue, RETRY_AFTER};
use whimbrel_sbi::headers::{
    MAX_RSP_TIME, MESSAGE_PRIORITY, MessagePriority, REQUEST_INFO, RETRY_AFTER_MAX, RequestInfo, ResponseDeadline,
    SENDER_TIMESTAMP, retry_after,
};
use whimbrel_sbi_types::common::DateTime;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(octets) else { return };
    let mut headers = HeaderMap::new();
    for name in [MESSAGE_PRIORITY, REQUEST_INFO, RETRY_AFTER, SENDER_TIMESTAMP, MAX_RSP_TIME] {
        headers.insert(name, value.clone());
    }
    assert!(MessagePriority::of(&headers).value() <= 31);
    let now = DateTime::from_unix_ms(1_795_968_000_000);
    assert!(retry_after(&headers, now).is_none_or(|wait| wait <= RETRY_AFTER_MAX));
    let info = RequestInfo::of(&headers);
    if let Some(again) = info.header() {
        assert_eq!(RequestInfo::of(&HeaderMap::from_iter([(REQUEST_INFO, again)])), info);
    }
    headers.insert(MAX_RSP_TIME, HeaderValue::from_static("10000"));
    if let Some(deadline) = ResponseDeadline::read(&headers) {
        let mut again = HeaderMap::new();
        deadline.write(&mut again);
        assert_eq!(ResponseDeadline::read(&again), Some(deadline));
        deadline.is_over(now);
    }
});
