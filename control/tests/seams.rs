//! AMF, SMF and UDM name nothing of each other but the service operations of `src/services` (TS 29.502, TS 29.503, TS 29.518).

use std::path::{Path, PathBuf};

/// Files of a folder and those below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder of a network function is there");
    let paths = entries.map(|e| e.expect("an entry").path());
    paths.flat_map(|p| if p.is_dir() { files(&p) } else { vec![p] }).collect()
}

/// Lines of a source file that name a module of the crate, with what brace groups and line breaks hide of it put together:
/// `use crate::{a, smf::b};` names `crate::smf`.
fn names(source: &str, module: &str) -> bool {
    let flat: String =
        source.lines().map(|l| l.split("//").next().unwrap_or("").trim()).collect::<Vec<_>>().join(" ");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let direct = flat
        .match_indices(&format!("crate::{module}"))
        .any(|(at, found)| !flat[at + found.len()..].starts_with(is_word));
    let grouped = flat.split("use crate::{").skip(1).any(|rest| {
        let group = rest.split(';').next().unwrap_or("");
        group.split(|c: char| !is_word(c) && c != ':').any(|path| path.split("::").next() == Some(module))
    });
    direct || grouped
}

fn assert_apart(folder: &str, others: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = files(&source.join(folder));
    assert!(!all.is_empty(), "{folder} has no file");
    for file in all.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let text = std::fs::read_to_string(file).expect("a source file is text");
        for other in others {
            assert!(
                !names(&text, other),
                "{} names crate::{other}: use an operation of services",
                file.display()
            );
        }
    }
}

#[test]
fn amf_names_no_module_of_smf_or_udm() {
    assert_apart("amf", &["smf", "udm"]);
}

#[test]
fn smf_names_no_module_of_amf_or_udm() {
    assert_apart("smf", &["amf", "udm"]);
}

#[test]
fn smf_reads_no_field_of_the_amf_context() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/smf");
    let is_test = |p: &Path| p.components().any(|c| c.as_os_str().to_string_lossy().contains("tests"));
    for file in files(&source).iter().filter(|f| !is_test(f.strip_prefix(&source).expect("within"))) {
        let text = std::fs::read_to_string(file).expect("a source file is text");
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        assert!(
            !["p.amf.", "ue.amf."].iter().any(|field| product.contains(field)),
            "{} reads the AMF's context: use an operation of services",
            file.display()
        );
    }
}

#[test]
fn udm_names_no_module_of_amf_or_smf() {
    assert_apart("udm", &["amf", "smf"]);
}

#[test]
fn service_operations_and_state_name_no_network_function() {
    assert_apart("services", &["amf", "smf", "udm"]);
    assert_apart("state", &["amf", "smf", "udm"]);
}

#[test]
fn an_import_is_found_however_it_is_written() {
    assert!(names("use crate::smf;", "smf"));
    assert!(names("use crate::smf::{self, Admitted};", "smf"));
    assert!(names("    crate::smf::keep_only(ue);", "smf"));
    assert!(names("use crate::{\n    event,\n    smf::SmContext,\n};", "smf"));
    assert!(!names("//! [`crate::smf`] is elsewhere", "smf"));
    assert!(!names("use crate::services::nsmf::Admitted;", "smf"));
    assert!(!names("use crate::{event, state::smf};", "smf"));
}
