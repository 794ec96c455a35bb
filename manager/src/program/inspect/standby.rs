//! The note beside the answer of a standby: the replica it is from, and the command line to ask the leader.

use super::Output;
use crate::inspect::pages::Standby;
use crate::program::escaped;

/// Prints the note about a standby to standard error, if the answer is from a standby.
pub(super) fn print_note(standby: Option<&Standby>, output: &mut Output<'_>) {
    if let Some(standby) = standby {
        output.note(&note(standby, &output.command));
    }
}

/// Returns the note about an answer from a standby: it names the leader, and a command to ask the leader.
/// `command` is the present command line.
pub(super) fn note(standby: &Standby, command: &[String]) -> String {
    let Standby { identity, leader, pod, namespace, forwarded, trouble } = standby;
    let of = escaped(&format!("this replica ({identity}) is a standby and reconciles nothing"));
    let Some(leader) = leader else { return format!("{of}; the leader is unknown") };
    if *forwarded {
        return escaped(&format!(
            "this is the answer of the leader {leader}, through the standby {identity}"
        ));
    }
    let leader = match trouble {
        Some(trouble) => format!("the leader {leader} did not answer ({trouble})"),
        None => format!("the leader is {leader}"),
    };
    let leader = escaped(&leader);
    let Some(pod) = pod else { return format!("{of}; {leader}") };
    let namespace = namespace.iter().flat_map(|namespace| ["-n", namespace]);
    let line = ["kubectl", "exec"].into_iter().chain(namespace).chain([pod, "--"]);
    let line: Vec<_> = line.chain(in_pod(command)).map(word).collect();
    format!("{of}; {leader}. Ask it:\n  {}", escaped(&line.join(" ")))
}

/// Returns the words of a command line without `--address` and its value, which is the address of this
/// replica, and may be a forwarded port.
fn in_pod(command: &[String]) -> impl Iterator<Item = &str> {
    let mut is_address = false;
    command.iter().map(String::as_str).filter(move |argument| {
        let left_out = is_address || argument.starts_with("--address=");
        is_address = *argument == "--address";
        !left_out && !is_address
    })
}

/// Returns a word of a command line, quoted for a shell if necessary.
fn word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standby(leader: Option<&str>, pod: Option<&str>, namespace: Option<&str>) -> Standby {
        let [leader, pod, namespace] = [leader, pod, namespace].map(|text| text.map(str::to_owned));
        let identity = "web-1_a".to_owned();
        Standby { identity, leader, pod, namespace, forwarded: false, trouble: None }
    }

    fn note_of(standby: &Standby, command: &[&str]) -> String {
        note(standby, &command.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_for_the_leader_is_quoted_for_a_shell() {
        let whole = standby(Some("web-0_b"), Some("web-0"), Some("system"));
        let line = |command: &[&str]| note_of(&whole, command).lines().nth(1).unwrap().to_owned();
        let expected = "  kubectl exec -n system web-0 -- mainstay why shop/web";
        assert_eq!(line(&["mainstay", "why", "shop/web"]), expected);
        assert_eq!(line(&["mainstay", "why", "--address", "localhost:9", "shop/web"]), expected);
        assert_eq!(line(&["mainstay", "why", "shop/web", "--address=localhost:9"]), expected);
        let quoted =
            line(&["mainstay", "inspect", "queue", "a b", "-n", "", "it's", "$(reboot)", "\u{1b}[2J"]);
        let expected = concat!(
            r"  kubectl exec -n system web-0 -- mainstay inspect queue 'a b' -n '' 'it'\''s' '$(reboot)' ",
            r"'\u{1b}[2J'",
        );
        assert_eq!(quoted, expected);
    }

    #[test]
    fn unknown_parts_are_left_out() {
        let command = &["mainstay", "why", "shop/web"];
        let of = "this replica (web-1_a) is a standby and reconciles nothing";
        for (standby, expected) in [
            (standby(None, None, Some("system")), "; the leader is unknown"),
            (standby(Some("b"), None, Some("system")), "; the leader is b"),
            (standby(Some("\u{1b}[2J\n"), None, None), r"; the leader is \u{1b}[2J\n"),
            (
                standby(Some("web-0_b"), Some("web-0"), None),
                "; the leader is web-0_b. Ask it:\n  kubectl exec web-0 -- mainstay why shop/web",
            ),
        ] {
            assert_eq!(note_of(&standby, command), format!("{of}{expected}"));
        }
        let whole = standby(Some("web-0_b"), Some("web-0"), None);
        let failed = Standby { trouble: Some("no way\n".to_owned()), ..whole.clone() };
        let expected = r"; the leader web-0_b did not answer (no way\n). Ask it:";
        assert_eq!(note_of(&failed, command).lines().next().unwrap(), format!("{of}{expected}"));
        let expected = "this is the answer of the leader web-0_b, through the standby web-1_a";
        assert_eq!(note_of(&Standby { forwarded: true, ..whole }, command), expected);
    }
}
