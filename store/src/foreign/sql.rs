//! Rows that the INSERT statements of an SQL dump hold, as mysqldump and phpMyAdmin write them. Other statements are read over.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Columns of one table at most: MySQL's own bound.
const COLUMNS_MAX: usize = 4096;

/// A row: the line on which it begins, its table, and its columns.
pub(super) struct SqlRow {
    pub(super) line: u64,
    pub(super) table: String,
    pub(super) columns: Map<String, Value>,
}

/// A token of a statement.
#[derive(Clone, Debug, PartialEq)]
enum SqlToken {
    /// A word or a number outside quotes.
    Word(String),
    /// A name in backquotes.
    Name(String),
    /// A quoted text.
    Text(String),
    Sign(char),
}

struct SqlLexer<'t> {
    rest: &'t str,
    line: u64,
}

/// Why a dump cannot be read, and on which line.
pub(super) type SqlError = (u64, &'static str);

impl SqlLexer<'_> {
    fn skip(&mut self, octets: usize) {
        let (passed, rest) = self.rest.split_at(octets.min(self.rest.len()));
        self.line += passed.bytes().filter(|o| *o == b'\n').count() as u64;
        self.rest = rest;
    }

    /// Behind white space and comments; a comment that runs to the end of the dump ends it.
    fn skip_comments(&mut self) {
        loop {
            let white = self.rest.len() - self.rest.trim_start().len();
            self.skip(white);
            let end = if self.rest.starts_with("--") || self.rest.starts_with('#') {
                self.rest.find('\n').map(|at| at + 1)
            } else if self.rest.starts_with("/*") {
                self.rest.find("*/").map(|at| at + 2)
            } else {
                return;
            };
            self.skip(end.unwrap_or(self.rest.len()));
        }
    }

    fn next(&mut self) -> Result<Option<SqlToken>, SqlError> {
        self.skip_comments();
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        if matches!(first, '\'' | '"' | '`') {
            let text = self.quoted(first)?;
            return Ok(Some(if first == '`' { SqlToken::Name(text) } else { SqlToken::Text(text) }));
        }
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-' | '$');
        let length = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        if length == 0 {
            self.skip(first.len_utf8());
            return Ok(Some(SqlToken::Sign(first)));
        }
        let word = self.rest[..length].to_owned();
        self.skip(length);
        Ok(Some(SqlToken::Word(word)))
    }

    /// A quoted text: a quote in it is doubled, or behind a backslash (not in backquotes).
    fn quoted(&mut self, quote: char) -> Result<String, SqlError> {
        let line = self.line;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' if quote != '`' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, '0')) => text.push('\0'),
                    Some((_, c)) => text.push(c),
                    None => break,
                },
                c if c == quote => {
                    if chars.next_if(|(_, next)| *next == quote).is_none() {
                        self.skip(at + quote.len_utf8());
                        return Ok(text);
                    }
                    text.push(quote);
                }
                c => text.push(c),
            }
        }
        Err((line, "a quoted text is not closed: the file was cut short"))
    }

    fn skip_statement(&mut self) -> Result<(), SqlError> {
        while self.next()?.is_some_and(|token| token != SqlToken::Sign(';')) {}
        Ok(())
    }

    fn expect_name(&mut self) -> Result<Option<String>, SqlError> {
        // With `database`.`table` the last one counts.
        let mut name = match self.next()? {
            Some(SqlToken::Name(name) | SqlToken::Word(name)) => name,
            _ => return Ok(None),
        };
        while self.rest.starts_with('.') {
            self.skip(1);
            match self.next()? {
                Some(SqlToken::Name(next)) => name = next,
                _ => return Ok(None),
            }
        }
        Ok(Some(name))
    }
}

/// Calls `each` for each row. Errors: the dump ends within a statement, or a row has another number of values than its
/// table has columns.
pub(super) fn rows(text: &str, each: &mut dyn FnMut(SqlRow)) -> Result<(), SqlError> {
    let mut lexer = SqlLexer { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while let Some(token) = lexer.next()? {
        match token {
            SqlToken::Word(word) if word.eq_ignore_ascii_case("create") => {
                if let Some((name, columns)) = created_table(&mut lexer)? {
                    tables.insert(name, columns);
                }
            }
            SqlToken::Word(word) if word.eq_ignore_ascii_case("insert") => {
                inserted(&mut lexer, &tables, each)?
            }
            SqlToken::Sign(';') => {}
            _ => lexer.skip_statement()?,
        }
    }
    Ok(())
}

/// The columns that CREATE TABLE names, in backquotes as dumps have them; the statement is read to its end.
fn created_table(lexer: &mut SqlLexer<'_>) -> Result<Option<(String, Vec<String>)>, SqlError> {
    let mut name = None;
    let mut columns = Vec::new();
    let (mut depth, mut begins) = (0u32, false);
    while let Some(token) = lexer.next()? {
        match token {
            SqlToken::Sign(';') => break,
            SqlToken::Sign('(') => {
                depth += 1;
                begins = depth == 1;
                continue;
            }
            SqlToken::Sign(')') => depth = depth.saturating_sub(1),
            SqlToken::Sign(',') if depth == 1 => {
                begins = true;
                continue;
            }
            SqlToken::Name(table) if depth == 0 => name = name.or(Some(table)),
            SqlToken::Name(column) if depth == 1 && begins && columns.len() < COLUMNS_MAX => {
                columns.push(column)
            }
            _ => {}
        }
        begins = false;
    }
    Ok(name.map(|name| (name, columns)))
}

fn inserted(
    lexer: &mut SqlLexer<'_>,
    tables: &BTreeMap<String, Vec<String>>,
    each: &mut dyn FnMut(SqlRow),
) -> Result<(), SqlError> {
    let is = |token: &Option<SqlToken>, word: &str| matches!(token, Some(SqlToken::Word(w)) if w.eq_ignore_ascii_case(word));
    let mut token = lexer.next()?;
    while token.is_some() && !is(&token, "into") {
        token = lexer.next()?;
    }
    let Some(table) = lexer.expect_name()? else { return lexer.skip_statement() };
    let mut columns = tables.get(&table).cloned().unwrap_or_default();
    token = lexer.next()?;
    if token == Some(SqlToken::Sign('(')) {
        columns.clear();
        loop {
            match lexer.next()? {
                Some(SqlToken::Name(name) | SqlToken::Word(name)) if columns.len() < COLUMNS_MAX => {
                    columns.push(name)
                }
                Some(SqlToken::Sign(',')) => {}
                Some(SqlToken::Sign(')')) => break,
                _ => return Err((lexer.line, "a list of columns is not closed: the file was cut short")),
            }
        }
        token = lexer.next()?;
    }
    if !is(&token, "values") {
        return lexer.skip_statement();
    }
    loop {
        match lexer.next()? {
            Some(SqlToken::Sign('(')) => {}
            Some(SqlToken::Sign(',')) => continue,
            Some(SqlToken::Sign(';')) => return Ok(()),
            None => return Err((lexer.line, "a statement is not closed: the file was cut short")),
            // ON DUPLICATE KEY UPDATE, or what else a statement may have behind its rows.
            Some(_) => return lexer.skip_statement(),
        }
        let line = lexer.line;
        let values = values(lexer)?;
        if values.len() != columns.len() {
            return Err((line, "the row has another number of values than its table has columns"));
        }
        each(SqlRow { line, table: table.clone(), columns: columns.iter().cloned().zip(values).collect() });
    }
}

/// The values of a row, behind its opening bracket.
fn values(lexer: &mut SqlLexer<'_>) -> Result<Vec<Value>, SqlError> {
    let mut values = Vec::new();
    let mut depth = 1u32;
    loop {
        match lexer.next()? {
            Some(SqlToken::Sign(')')) => {
                depth -= 1;
                if depth == 0 {
                    return Ok(values);
                }
            }
            Some(SqlToken::Sign('(')) => depth = depth.saturating_add(1),
            Some(SqlToken::Sign(_)) => {}
            Some(SqlToken::Text(text)) => values.push(value_of(text)),
            Some(SqlToken::Word(word)) if word.eq_ignore_ascii_case("null") => values.push(Value::Null),
            // A number, or the character set before a text (`_utf8mb4'…'`), which is left out.
            Some(SqlToken::Word(word)) => values.extend((!word.starts_with('_')).then(|| number_of(word))),
            Some(SqlToken::Name(name)) => values.push(Value::String(name)),
            None => return Err((lexer.line, "a row is not closed: the file was cut short")),
        }
        if values.len() > COLUMNS_MAX {
            return Err((lexer.line, "the row has more values than a table has columns"));
        }
    }
}

/// A text: what it holds, if it is an object or a list in JSON.
fn value_of(text: String) -> Value {
    let is_json = text.trim_start().starts_with(['{', '[']);
    is_json.then(|| serde_json::from_str(&text).ok()).flatten().unwrap_or(Value::String(text))
}

fn number_of(word: String) -> Value {
    word.parse::<u64>().map_or(Value::String(word), Value::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn all(text: &str) -> Result<Vec<(u64, String, Value)>, SqlError> {
        let mut found = Vec::new();
        rows(text, &mut |row| found.push((row.line, row.table, Value::Object(row.columns))))?;
        Ok(found)
    }

    #[test]
    fn rows_are_read_with_the_columns_of_the_statement_or_of_the_table() {
        let text = "-- a dump; with 'quotes\nSET X = \"a;b\";\n/*!40101 SET NAMES utf8 */;\n\
            CREATE TABLE `t` (\n  `a` varchar(15) NOT NULL, `b` json DEFAULT NULL,\n  PRIMARY KEY (`a`)\n) ENGINE=InnoDB;\n\
            INSERT INTO `t` VALUES ('1','{\\\"x\\\": [1, \\\"y\\\"]}'),\n('it''s\\n',NULL);\n\
            insert ignore into `db`.`u` (`c`, d) values (7, _utf8mb4'[1]') ON DUPLICATE KEY UPDATE `c`=1;";
        let expected = [
            (8, "t".to_owned(), json!({ "a": "1", "b": { "x": [1, "y"] } })),
            (9, "t".to_owned(), json!({ "a": "it's\n", "b": null })),
            (10, "u".to_owned(), json!({ "c": 7, "d": [1] })),
        ];
        assert_eq!(all(text).unwrap(), expected);
    }

    #[test]
    fn a_dump_that_was_cut_short_or_whose_rows_do_not_fit_is_reported() {
        for (text, line) in [
            ("INSERT INTO `t` (`a`) VALUES ('1", 1),
            ("\nINSERT INTO `t` (`a`) VALUES ('1'", 2),
            ("INSERT INTO `t` (`a`) VALUES ('1')", 1),
            ("INSERT INTO `t` (`a`", 1),
            ("INSERT INTO `t` (`a`)\nVALUES ('1', '2');", 2),
        ] {
            assert_eq!(all(text).map_err(|(line, _)| line), Err(line), "{text}");
        }
        assert_eq!(all("").unwrap(), []);
        assert_eq!(all("INSERT INTO `t` SELECT 1; DROP TABLE `t`").unwrap(), []);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(INSERT|INTO|VALUES|CREATE|TABLE|`a`|`|'|\"|\\\\|\\(|\\)|,|;|--|/\\*|\\*/|#|\n| |x|7|é){0,40}") {
            let _ = all(&text);
        }
    }
}
