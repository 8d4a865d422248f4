//! Iterators, sorting, strings, numbers: one thread, so that it is a scavenger, too.
use std::collections::{BTreeMap, BTreeSet, HashSet};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Token { Number(i64), Name(String), Sign(char) }

fn tokens(text: &str) -> Result<Vec<Token>, usize> {
    let (mut out, mut at) = (Vec::new(), text.char_indices().peekable());
    while let Some(&(i, c)) = at.peek() {
        if c.is_ascii_digit() {
            let mut n = 0i64;
            while let Some((_, c)) = at.next_if(|(_, c)| c.is_ascii_digit()) { n = n.wrapping_mul(10) + i64::from(c as u8 - b'0') }
            out.push(Token::Number(n));
        } else if c.is_alphabetic() {
            let mut s = String::new();
            while let Some((_, c)) = at.next_if(|(_, c)| c.is_alphanumeric()) { s.extend(c.to_uppercase()) }
            out.push(Token::Name(s));
        } else if "+-*/()".contains(c) { out.push(Token::Sign(c)); at.next(); }
        else if c == ' ' { at.next(); }
        else { return Err(i) }
    }
    Ok(out)
}

fn value(t: &[Token], at: &mut usize) -> Option<i64> {
    let mut left = factor(t, at)?;
    while let Some(Token::Sign(s @ ('+' | '-' | '*'))) = t.get(*at) {
        *at += 1;
        let right = factor(t, at)?;
        left = match s { '+' => left.checked_add(right)?, '-' => left.checked_sub(right)?, _ => left.checked_mul(right)? };
    }
    Some(left)
}
fn factor(t: &[Token], at: &mut usize) -> Option<i64> {
    *at += 1;
    match t.get(*at - 1)? {
        Token::Number(n) => Some(*n),
        Token::Name(s) => Some(s.len() as i64),
        Token::Sign('(') => { let v = value(t, at); *at += 1; v }
        Token::Sign('-') => factor(t, at)?.checked_neg(),
        Token::Sign(_) => None,
    }
}

fn main() {
    let texts: Vec<String> = (0..200).map(|n| format!("{} + (αβ{} * {}) - x{}{}", n, n % 7, n * 31 % 17, n, if n % 23 == 0 { "?" } else { "" })).collect();
    let mut kinds: BTreeMap<Token, usize> = BTreeMap::new();
    let (mut sum, mut bad) = (0i64, 0);
    for text in &texts {
        match tokens(text) {
            Ok(t) => { sum += value(&t, &mut 0).unwrap_or(-1); t.into_iter().for_each(|t| *kinds.entry(t).or_default() += 1) }
            Err(at) => bad += at,
        }
    }
    let mut numbers: Vec<u64> = (0..3000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).collect();
    numbers.sort_unstable_by_key(|n| (n % 101, *n));
    let steps: u64 = numbers.windows(2).filter(|w| w[0] % 101 == w[1] % 101).map(|w| w[1] - w[0]).sum();
    numbers.sort_by(|a, b| b.count_ones().cmp(&a.count_ones()).then(a.cmp(b)));
    let unique: HashSet<u64> = numbers.iter().map(|n| n % 499).collect();
    let set: BTreeSet<_> = numbers.chunks(7).map(|c| c.iter().fold(0u64, |a, b| a.rotate_left(5) ^ b)).collect();
    let grid: Vec<Vec<f64>> = (0..24).map(|i| (0..24).map(|j| f64::from((i * j) % 11) / 3.0).collect()).collect();
    let product: f64 = (0..24).map(|i| (0..24).map(|j| (0..24).map(|k| grid[i][k] * grid[k][j]).sum::<f64>() * ((i + j) % 3) as f64).sum::<f64>()).sum();
    println!("{sum} {bad} {} {steps} {} {} {product:.6} {:?}", kinds.len(), unique.len(), set.len(), kinds.iter().next_back());
}
