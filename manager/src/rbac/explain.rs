//! The rights as a text for people who grant them.

use std::fmt::{self, Write as _};

use super::{Grounds, Rights, Rule};

// === impl Rights ===

impl Rights {
    /// Returns a text that names for every rule the declarations that need it: verbs, reason, and line of
    /// code or key of the configuration.
    ///
    /// ```text
    /// ClusterRole greeter
    ///   configmaps: list, watch
    ///     list, watch: the cache lists and watches it (src/main.rs:26)
    /// ```
    pub fn explain(&self) -> String {
        let mut text = String::new();
        let mut role = None;
        for rule in self.rules() {
            if role != Some(&rule.namespace) {
                role = Some(&rule.namespace);
                text.push_str(&self.heading(rule));
            }
            let verbs: Vec<&str> = rule.verbs().collect();
            // Writing into a string never fails.
            writeln!(text, "  {}: {}", rule.target, verbs.join(", ")).ok();
            for (verbs, Grounds { why, place, seldom }) in rule.grounds() {
                let seldom = if *seldom { ", seldom used" } else { "" };
                writeln!(text, "    {}: {why} ({place}{seldom})", verbs.join(", ")).ok();
            }
        }
        text
    }

    fn heading(&self, rule: &Rule) -> String {
        match &rule.namespace {
            Some(namespace) => format!("Role {} in namespace {namespace}\n", self.name()),
            None => format!("ClusterRole {}\n", self.name()),
        }
    }
}

// === impl Rule ===

impl Rule {
    /// Returns the declarations that need this rule, each once, with the verbs that it needs.
    pub fn grounds(&self) -> Vec<(Vec<&str>, &Grounds)> {
        let mut all: Vec<(Vec<&str>, &Grounds)> = Vec::new();
        for (verb, grounds) in &self.verbs {
            for one in grounds {
                match all.iter_mut().find(|(_, known)| *known == one) {
                    Some((verbs, _)) => verbs.push(verb.as_str()),
                    None => all.push((vec![verb.as_str()], one)),
                }
            }
        }
        all
    }
}

impl fmt::Display for Rule {
    /// Writes verbs, resource and namespace, and every declaration that needs them, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verbs().collect::<Vec<_>>().join(","), self.place())?;
        let grounds = self.grounds();
        for (at, (_, Grounds { why, place, .. })) in grounds.iter().enumerate() {
            write!(f, "{} {why} ({place})", if at == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}
