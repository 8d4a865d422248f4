//! A minimal HTTP/1.1 GET (RFC 9112).

/// The request, with `Connection: close`.
pub(super) fn request(host: &str, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: whimbrel-ran\r\nConnection: close\r\n\r\n")
        .into_bytes()
}

/// Limit of the response head.
const HEAD_OCTETS_MAX: usize = 16 * 1024;

/// An incremental parser of the response.
#[derive(Debug, Default)]
pub(super) struct Response {
    head: Vec<u8>,
    head_ended: bool,
    status: Option<u16>,
    content_length: Option<u64>,
    body_octets: u64,
}

impl Response {
    /// Adds received octets; `false` if they are no HTTP.
    pub(super) fn take(&mut self, mut octets: &[u8]) -> bool {
        if !self.head_ended {
            self.head.extend_from_slice(octets);
            let Some(end) = self.head.windows(4).position(|w| w == b"\r\n\r\n") else {
                return self.head.len() <= HEAD_OCTETS_MAX;
            };
            self.head_ended = true;
            let body = self.head.len() - (end + 4);
            octets = &octets[octets.len() - body.min(octets.len())..];
            if !self.read_head() {
                return false;
            }
            self.head = Vec::new();
        }
        self.body_octets += octets.len() as u64;
        true
    }

    fn read_head(&mut self) -> bool {
        let Ok(head) = core::str::from_utf8(&self.head) else { return false };
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|l| l.strip_prefix("HTTP/1.")).and_then(|l| l.split(' ').nth(1));
        self.status = status.and_then(|s| s.parse().ok());
        let length =
            lines.filter_map(|l| l.split_once(':')).find(|(n, _)| n.eq_ignore_ascii_case("content-length"));
        self.content_length = length.and_then(|(_, v)| v.trim().parse().ok());
        self.status.is_some()
    }

    /// Status and body length once complete, by Content-Length or by the end of the connection.
    pub(super) fn whole(&self, closed: bool) -> Option<(u16, u64)> {
        let by_length = self.content_length.is_some_and(|n| self.body_octets >= n);
        let by_end = closed && self.content_length.is_none();
        self.status.filter(|_| by_length || by_end).map(|status| (status, self.body_octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // RFC 9112 §6.3
    fn length_or_end_make_it_whole() {
        let mut r = Response::default();
        assert!(r.take(b"HTTP/1.1 200 OK\r\nContent-Le"));
        assert!(r.take(b"ngth: 5\r\n\r\nhel"));
        assert_eq!(r.whole(false), None);
        assert_eq!(r.whole(true), None);
        assert!(r.take(b"lo"));
        assert_eq!(r.whole(false), Some((200, 5)));
        let mut r = Response::default();
        assert!(r.take(b"HTTP/1.0 404 Not Found\r\n\r\ngone"));
        assert_eq!((r.whole(false), r.whole(true)), (None, Some((404, 4))));
        assert!(!Response::default().take(b"SSH-2.0\r\n\r\n"));
    }
}
