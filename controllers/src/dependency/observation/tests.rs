use super::*;

#[test]
fn a_check_that_cannot_be_made_is_blind_and_not_a_failure() {
    for (reason, expected) in [
        (reasons::probe::REFUSED, State::NotReady),
        (reasons::probe::NAMESPACE_UNKNOWN, State::Blind),
        (reasons::probe::OWNERS_UNKNOWN, State::Blind),
        (reasons::probe::LOOK_UP_FAILED, State::Blind),
    ] {
        let result = ProbeResult::NotReady { reason, message: "because".to_owned() };
        let is_blind = expected == State::Blind;
        let state = if is_blind { VerdictState::Pending } else { VerdictState::NotReady };
        let verdict = Verdict { state, result: Some(result) };
        assert_eq!(Observation::probed(&tcp(), verdict).state, expected, "{reason}");
    }
}

fn tcp() -> ProbeCheck {
    ProbeCheck::Tcp(mainstay_api::Address::parse("address", "db:80").unwrap())
}

#[test]
fn a_ready_target_keeps_its_reason_while_failures_are_below_the_threshold() {
    let (record, min_records) = (mainstay_api::wait_for::DnsRecord::Address, 1);
    let name = mainstay_api::plan::DnsCheck { name: "db.example.com".to_owned(), record, min_records };
    let failure = ProbeResult::NotReady { reason: reasons::probe::REFUSED, message: String::new() };
    for (check, reason) in [(tcp(), "Connected"), (ProbeCheck::Dns(name), "Answered")] {
        for result in [ProbeResult::good(&check), failure.clone()] {
            let verdict = Verdict { state: VerdictState::Ready, result: Some(result) };
            assert_eq!(Observation::probed(&check, verdict).reason, reason);
        }
    }
}
