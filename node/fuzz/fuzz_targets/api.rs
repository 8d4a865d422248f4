//! A request of the API as far as it is text: path and query in the first line, the body of a subscriber behind it.
#![no_main]

#[path = "../../../api/src/uri.rs"]
mod uri;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (target, body) = text.split_once('\n').unwrap_or((text, ""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    for pattern in
        ["/api/v1/subscribers/{supi}", "/api/v1/ues/{supi}/sessions/{id}/modify", "/{a}/{b}", "{a}"]
    {
        let parts = pattern.matches('{').count();
        if let Some(Some(params)) = uri::matches(pattern, path) {
            assert_eq!(params.len(), parts);
            let _ = params.iter().map(|p| p.parse::<whimbrel_ids::Supi>().is_ok()).count();
        }
    }
    let _ = uri::query(query);
    if let Ok(record) = serde_json::from_str::<whimbrel_store::SubscriberRecord>(body) {
        // Whatever is read can be shown, and shows no key.
        assert!(!serde_json::to_string(&record).unwrap_or_default().contains("\"k\":"));
    }
});
