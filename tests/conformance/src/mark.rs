//! A mark: the clauses that a comment names.
//!
//! `TS 24.501 §5.5.1.2.8 d, e; §5.4.1 and TS 38.413 §8.3.1 to §8.3.3: what it is about`. It begins at the first `TS`, and ends
//! at the first colon (or closing parenthesis) after it. Between commas, semicolons and "and" stand clauses, each with a
//! qualifier after it or none. A clause without `TS` is of the specification before it; a letter, a step or a cause number
//! alone is of the clause before it.

/// A clause, and what of it: one line of the lists, or one thing that a mark names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The specification: `24.501`.
    pub spec: String,
    /// The clause without its sign: `5.5.1.2.8`, `C.3.4.1`.
    pub clause: String,
    /// What of it, in lower case: a letter (`d`, `d 1`), a step (`step 4`), a cause (`#22`), a word of the lists; or nothing.
    pub qualifier: String,
}

/// All that a comment names. One that names nothing has no mark.
pub fn parse(comment: &str) -> Vec<Mark> {
    let mut marks = Vec::new();
    let Some(begin) = specification(comment) else { return marks };
    let text = comment[begin..].replace("Annex ", "§");
    let end = text.find([':', ')']).unwrap_or(text.len());
    let text = &text[..end];
    let mut spec = String::new();
    let mut clause = String::new();
    for part in text.split([',', ';']).flat_map(|p| p.split(" and ")) {
        let mut rest = part.trim();
        if let Some(after) = rest.strip_prefix("TS ") {
            let Some((name, after)) = after.split_once([' ', ',']) else { continue };
            spec = name.to_owned();
            clause.clear();
            rest = after.trim_start();
        }
        match rest.strip_prefix('§') {
            Some(after) => range(&mut marks, &spec, &mut clause, after),
            None if !clause.is_empty() => {
                let qualifier = normal(rest);
                if bare(&qualifier) {
                    push(&mut marks, &spec, &clause, &qualifier);
                }
            }
            None => {}
        }
    }
    marks
}

/// Where the first `TS dd.ddd` begins.
fn specification(comment: &str) -> Option<usize> {
    let digits = |s: &str| s.len() == 5 && s.chars().all(|c| c.is_ascii_digit());
    comment.match_indices("TS ").map(|(at, _)| at).find(|at| {
        let after: String = comment[at + 3..].chars().take(6).collect();
        after.split_once('.').is_some_and(|(a, b)| a.len() == 2 && digits(&format!("{a}{b}")))
    })
}

/// `5.3.1 to §5.3.4 step 2`: the clauses from one to the other, which differ in their last number, or one clause.
fn range(marks: &mut Vec<Mark>, spec: &str, clause: &mut String, text: &str) {
    let mut texts = text.split(" to §");
    let first = texts.next().unwrap_or_default();
    let (from, qualifier) = split(first);
    push(marks, spec, from, &normal(qualifier));
    from.clone_into(clause);
    for text in texts {
        let (to, qualifier) = split(text);
        for between in between(clause, to) {
            push(marks, spec, &between, "");
        }
        push(marks, spec, to, &normal(qualifier));
        to.clone_into(clause);
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(text.len());
    (text[..end].trim_end_matches('.'), text[end..].trim())
}

fn between(from: &str, to: &str) -> Vec<String> {
    let parts =
        |c: &str| c.rsplit_once('.').and_then(|(head, n)| Some((head.to_owned(), n.parse::<u16>().ok()?)));
    match (parts(from), parts(to)) {
        (Some((a, n)), Some((b, m))) if a == b => (n + 1..m).map(|i| format!("{a}.{i}")).collect(),
        _ => Vec::new(),
    }
}

/// `Steps 4 to 6` is `step 4`, `step 5`, `step 6`.
fn push(marks: &mut Vec<Mark>, spec: &str, clause: &str, qualifier: &str) {
    if spec.is_empty() || clause.is_empty() {
        return;
    }
    for qualifier in steps(qualifier) {
        marks.push(Mark { spec: spec.to_owned(), clause: clause.to_owned(), qualifier });
    }
}

fn steps(qualifier: &str) -> Vec<String> {
    if let Some(span) = qualifier.strip_prefix("steps ")
        && let Some((from, to)) = span.split_once(" to ").or_else(|| span.split_once('-'))
        && let (Ok(from), Ok(to)) = (from.trim().parse::<u8>(), to.trim().parse::<u8>())
        && from <= to
    {
        return (from..=to).map(|n| format!("step {n}")).collect();
    }
    vec![qualifier.to_owned()]
}

/// One space between words, lower case, no full stop at the end; `case d` is `d`.
fn normal(qualifier: &str) -> String {
    let words: Vec<_> = qualifier.split_whitespace().collect();
    let text = words.join(" ").trim_end_matches(['.', ')']).to_lowercase();
    text.strip_prefix("case ").map_or(text.clone(), str::to_owned)
}

/// What may stand without its clause: a letter with a number or none, a step, a cause.
fn bare(qualifier: &str) -> bool {
    let mut words = qualifier.split(' ');
    let first = words.next().unwrap_or_default();
    let number = words.next().is_none_or(|w| w.parse::<u8>().is_ok()) && words.next().is_none();
    let letter = first.len() == 1 && first.chars().all(|c| c.is_ascii_lowercase());
    (letter && number) || qualifier.starts_with('#') || qualifier.starts_with("step")
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn names(comment: &str) -> Vec<String> {
        parse(comment).into_iter().map(|m| format!("{} {} {}", m.spec, m.clause, m.qualifier)).collect()
    }

    #[test] // one clause, with and without what of it
    fn one_clause() {
        assert_eq!(names("TS 24.501 §5.5.1.2.8 d: starts over"), ["24.501 5.5.1.2.8 d"]);
        assert_eq!(names("TS 23.502 §4.2.6"), ["23.502 4.2.6 "]);
        assert_eq!(names("it begins again (TS 24.501 §5.4.1.3.7 b). Then more, §9"), ["24.501 5.4.1.3.7 b"]);
        assert_eq!(names("TS 33.501 Annex C.3.4.2: compression"), ["33.501 C.3.4.2 "]);
        assert_eq!(names("TS 24.501 §5.5.1.2.5 #22: congestion"), ["24.501 5.5.1.2.5 #22"]);
        assert_eq!(names("TS 38.413 §10.3.4.1A: unknown"), ["38.413 10.3.4.1A "]);
        assert_eq!(names("RFC 9260 §5.1"), Vec::<String>::new());
        assert_eq!(names("several sessions of one UE"), Vec::<String>::new());
    }

    #[test] // several, separated by commas, semicolons, "and", "to"
    fn several_clauses() {
        assert_eq!(
            names("TS 24.501 §5.3.9, §5.5.1.2.5 #22; TS 38.413 §8.3.1 and §8.6"),
            ["24.501 5.3.9 ", "24.501 5.5.1.2.5 #22", "38.413 8.3.1 ", "38.413 8.6 "]
        );
        assert_eq!(
            names("TS 24.501 §5.5.1.2.2 to §5.5.1.2.4: x"),
            ["24.501 5.5.1.2.2 ", "24.501 5.5.1.2.3 ", "24.501 5.5.1.2.4 "]
        );
        assert_eq!(
            names("TS 24.501 §5.5.1.2.8 b, c, d 1: x"),
            ["24.501 5.5.1.2.8 b", "24.501 5.5.1.2.8 c", "24.501 5.5.1.2.8 d 1"]
        );
        assert_eq!(
            names("TS 23.502 §4.9.1.3.2 steps 4 to 6, step 9, table 3"),
            [
                "23.502 4.9.1.3.2 step 4",
                "23.502 4.9.1.3.2 step 5",
                "23.502 4.9.1.3.2 step 6",
                "23.502 4.9.1.3.2 step 9"
            ]
        );
    }
}
