//! The rules in full, each at a place that stays while the rule stands.

use crate::rule::Rule;

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleRows {
    rules: Vec<Rule>,
    free: Vec<u32>,
}

impl RuleRows {
    pub(crate) fn add(&mut self, rule: Rule) -> u32 {
        match self.free.pop() {
            Some(row) => {
                self.rules[row as usize] = rule;
                row
            }
            None => {
                self.rules.push(rule);
                self.rules.len() as u32 - 1
            }
        }
    }

    pub(crate) fn release(&mut self, row: u32) {
        self.free.push(row);
    }

    #[inline(always)]
    pub(crate) fn get(&self, row: u32) -> &Rule {
        &self.rules[row as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len() - self.free.len()
    }
}
