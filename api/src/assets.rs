//! The console's files, compiled into the program.

use hyper::header::{CACHE_CONTROL, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use hyper::{HeaderMap, StatusCode};

use super::routes::Reply;

/// What the page may load: its own files, and nothing that stands in the page itself (no inline script, no inline style).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the console, as it is served.
pub(super) struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($path:literal $content_type:literal $file:literal;)*) => {
        const FILES: &[File] = &[
            $(File { path: $path, content_type: $content_type, text: include_str!(concat!("web/", $file)) },)*
        ];
    };
}

files! {
    "/" "text/html; charset=utf-8" "index.html";
    "/console/app.js" "text/javascript; charset=utf-8" "app.js";
    "/console/api.js" "text/javascript; charset=utf-8" "api.js";
    "/console/dom.js" "text/javascript; charset=utf-8" "dom.js";
    "/console/pages.js" "text/javascript; charset=utf-8" "pages.js";
    "/console/cluster.js" "text/javascript; charset=utf-8" "cluster.js";
    "/console/config.js" "text/javascript; charset=utf-8" "config.js";
    "/console/ue.js" "text/javascript; charset=utf-8" "ue.js";
    "/console/subscribers.js" "text/javascript; charset=utf-8" "subscribers.js";
    "/console/charging.js" "text/javascript; charset=utf-8" "charging.js";
    "/console/admin.js" "text/javascript; charset=utf-8" "admin.js";
    "/console/style.css" "text/css; charset=utf-8" "style.css";
    "/console/icon.svg" "image/svg+xml" "icon.svg";
}

/// The file of a path.
pub(super) fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|f| f.path == path)
}

impl File {
    /// The file, or that the browser has it already.
    pub(super) fn reply(&self, headers: &HeaderMap) -> Reply {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.text.as_bytes());
        let hex: String = digest.as_ref().iter().take(8).map(|o| format!("{o:02x}")).collect();
        let tag = format!("\"{hex}\"");
        let is_known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(tag.as_str());
        let reply = match is_known {
            true => Reply::without_body(StatusCode::NOT_MODIFIED),
            false => Reply::text(self.content_type, self.text),
        };
        let tag = HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"0\""));
        reply
            .header(ETAG, tag)
            .header(CACHE_CONTROL, HeaderValue::from_static("no-cache"))
            .header(HeaderName::from_static("content-security-policy"), HeaderValue::from_static(POLICY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 33.117 §4.2.5.3: what others wrote must not become a part of the page
    fn pages_make_no_markup_of_text() {
        for file in FILES.iter().filter(|f| f.content_type.starts_with("text/")) {
            for means in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "setTimeout(\"",
                "DOMParser",
                "createContextualFragment",
                "srcdoc",
                "style=\"",
                "onclick=\"",
                "javascript:",
            ] {
                assert!(!file.text.contains(means), "{} contains {means}", file.path);
            }
        }
    }

    #[test]
    fn the_first_view_is_small_and_every_file_that_is_named_exists() {
        let all: usize = FILES.iter().map(|f| f.text.len()).sum();
        assert!(all <= 150_000, "{all} octets");
        for file in FILES {
            for part in
                file.text.split(['"', '\'']).filter(|p| p.starts_with("./") || p.starts_with("/console/"))
            {
                let path = part.replace("./", "/console/");
                assert!(find(&path).is_some(), "{} names {part}", file.path);
            }
        }
    }
}
