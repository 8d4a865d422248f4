//! The ratchet on words, on a tree of its own.

use std::fs;
use std::path::{Path, PathBuf};

use whimbrel_conformance::words::{ALLOWED, DENIED, check, denied, words};

/// A tree that is gone with the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("whimbrel-words-{name}-{}", std::process::id()));
        let tree = Self(root);
        tree.write(DENIED, "# what to write\ntold, tells: reports\nlet go, lets go: release\n");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn allowed(&self) -> String {
        fs::read_to_string(self.0.join(ALLOWED)).unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn examples_of_what_is_not_to_be_written_do_not_count() {
    let tree = Tree::new("examples");
    let table =
        "| where | before | after |\n| --- | --- | --- |\n| log | it is told | it tells |\n\n| told | \n";
    tree.write("CONTRIBUTING.md", table);
    let outcome = check(&tree.0, true).unwrap();
    assert_eq!(outcome.total, 2, "`tells` behind the example, and the other table");
}

#[test]
fn a_count_that_rises_fails_and_one_that_falls_is_lowered_by_an_update() {
    let tree = Tree::new("ratchet");
    tree.write(
        "app/src/a.rs",
        "/// Who is told, and what it tells.\nfn is_told(ToldOnce: u8) { let goes = 1; }\n",
    );
    tree.write("README.md", "The gNB lets go\nof it, and untold others.\n");
    check(&tree.0, true).unwrap();
    let outcome = check(&tree.0, false).unwrap();
    assert_eq!(
        (outcome.risen.len(), outcome.fallen, outcome.total),
        (0, 0, 5),
        "{outcome:?}\n{}",
        tree.allowed()
    );

    tree.write("app/src/b.rs", "// told\n");
    tree.write("user/src/c.rs", "// told\n");
    let outcome = check(&tree.0, false).unwrap();
    let risen = [
        "app: `told` stands 5 times, 4 are allowed; write: reports",
        "user: `told` stands 1 times, 0 are allowed; write: reports",
    ];
    assert_eq!(outcome.risen, risen);
    // An update does not let them in.
    check(&tree.0, true).unwrap();
    assert_eq!(check(&tree.0, false).unwrap().risen, risen);

    tree.write("app/src/b.rs", "");
    tree.write("user/src/c.rs", "");
    tree.write("app/src/a.rs", "/// What is reported.\n");
    let outcome = check(&tree.0, false).unwrap();
    assert!(outcome.risen.is_empty() && outcome.fallen == 4, "{outcome:?}");
    check(&tree.0, true).unwrap();
    assert_eq!(check(&tree.0, false).unwrap().fallen, 0);
    tree.write("app/src/a.rs", "// told\n");
    assert_eq!(check(&tree.0, false).unwrap().risen.len(), 1);
}

#[test]
fn generated_text_foreign_text_and_the_list_itself_are_not_counted() {
    let tree = Tree::new("excluded");
    for path in [
        "CHANGELOG.md",
        "docs/glossary.md",
        "docs/conformance.md",
        "wire/nas/testdata/a.md",
        "target/a.rs",
        ".x/a.sh",
        "app/a.json",
    ] {
        tree.write(path, "told told\n");
    }
    assert_eq!(check(&tree.0, true).unwrap().total, 0);
    tree.write("docs/a.md", "told\n");
    assert_eq!(check(&tree.0, false).unwrap().total, 1);
}

#[test]
fn words_are_split_at_signs_and_at_capitals() {
    assert_eq!(words("PhoneId is_told, it's NAS2x"), ["phone", "id", "is", "told", "it", "s", "nas", "x"]);
}

#[test]
fn each_word_of_the_list_is_there_once_and_has_what_to_write_instead() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = denied(&fs::read_to_string(root.join(DENIED)).unwrap());
    assert!(list.len() > 20 && list.iter().all(|d| !d.instead.is_empty()));
    let mut forms: Vec<_> = list.iter().flat_map(|d| &d.forms).collect();
    let count = forms.len();
    forms.sort();
    forms.dedup();
    assert_eq!(forms.len(), count, "a form stands there twice");
    assert!(forms.iter().all(|f| !f.is_empty()));
}
