//! Decisions by state and check result.

use super::*;

fn course(scenario: &Scenario) -> String {
    let decision = scenario.decide();
    let closed =
        decision.closed.map_or("", |closed| if closed.expired.is_some() { " expired" } else { " closed" });
    let next = decision.next.map_or_else(String::new, |next| format!(" next {}s", next.as_secs()));
    let course = match decision.course {
        Course::Leave => "leave".to_owned(),
        Course::Conflict(conflict) => format!("conflict {conflict:?}"),
        Course::Terminating => "terminating".to_owned(),
        Course::Invalid(invalid) => format!("invalid {}", invalid.path),
        Course::Wait => "wait".to_owned(),
        Course::Write(write) => {
            let flags = [
                (write.adopts, "adopts"),
                (write.proceeds, "proceeds"),
                (write.holds_template, "holds template"),
                (write.replicas == Replicas::Held, "holds replicas"),
                (write.replicas == Replicas::ScaledToZero, "scales to zero"),
            ];
            let flags: Vec<_> = flags.into_iter().filter_map(|(is, name)| is.then_some(name)).collect();
            format!("write {}", flags.join(", ")).trim_end().to_owned()
        }
    };
    format!("{course}{closed}{next}")
}

#[test]
fn decisions_follow_the_table_of_deployments_and_results() {
    let probe = object(&json!({"waitProbe": {"address": "postgres:5432"}}));
    let owned = live(&probe, &available());
    let mut foreign = owned.clone();
    foreign.metadata.owner_references[0].uid = "other".to_owned();
    foreign.metadata.owner_references[0].kind = "Rollout".to_owned();
    let mut orphan = owned.clone();
    orphan.metadata.owner_references.clear();
    let mut other = orphan.clone();
    other.spec.selector.match_labels = None;
    let mut deleting = owned.clone();
    deleting.metadata.deletion_timestamp = Some(Time(at(1)));
    let deployments = [
        ("none", None),
        ("owned", Some(owned)),
        ("foreign", Some(foreign)),
        ("orphan", Some(orphan)),
        ("other", Some(other)),
        ("deleting", Some(deleting)),
    ];
    let probes = [
        ("valid", probe.clone()),
        ("absent", object(&json!({}))),
        ("invalid", object(&json!({"waitProbe": {"address": ":1"}}))),
    ];
    let results = [("-", unknown()), ("ready", ready()), ("refused", refused()), ("denied", denied())];

    let mut table = String::new();
    for (deployment, live) in &deployments {
        for (kind, object) in &probes {
            let checks = object.plan().is_ok_and(|plan| needs_checks(object, &plan, live.as_ref()));
            for (name, result) in &results[..if checks { 4 } else { 1 }] {
                let mut scenario = Scenario::new(object.clone(), std::slice::from_ref(result));
                scenario.live.clone_from(live);
                let checks = if checks { "checks" } else { "" };
                writeln!(table, "{deployment:8} {kind:8} {name:8} {checks:7} {}", course(&scenario)).unwrap();
            }
        }
    }
    let expected = "\
none     valid    -        checks  wait closed
none     valid    ready    checks  write
none     valid    refused  checks  wait closed
none     valid    denied   checks  wait closed
none     absent   -                write
none     invalid  -                invalid waitProbe.address closed
owned    valid    -        checks  write
owned    valid    ready    checks  write
owned    valid    refused  checks  write
owned    valid    denied   checks  write
owned    absent   -                write
owned    invalid  -                write
foreign  valid    -                conflict Controlled(\"Rollout web\")
foreign  absent   -                conflict Controlled(\"Rollout web\")
foreign  invalid  -                conflict Controlled(\"Rollout web\")
orphan   valid    -                write adopts
orphan   absent   -                write adopts
orphan   invalid  -                write adopts
other    valid    -                conflict OtherSelector
other    absent   -                conflict OtherSelector
other    invalid  -                conflict OtherSelector
deleting valid    -                terminating
deleting absent   -                terminating
deleting invalid  -                terminating
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn several_dependencies_lead_to_one_decision() {
    let cases = [
        ("All", [ready(), ready()], "write"),
        ("All", [ready(), unknown()], "wait closed"),
        ("All", [ready(), refused()], "wait closed"),
        ("All", [ready(), denied()], "wait closed"),
        ("Any", [refused(), ready()], "write"),
        ("Any", [unknown(), ready()], "write"),
        ("Any", [refused(), unknown()], "wait closed"),
        ("Any", [denied(), invalid()], "wait closed"),
    ];
    for (policy, observations, expected) in cases {
        let scenario = Scenario::new(wait_for(&["a", "b"], &json!({"match": policy})), &observations);
        assert_eq!(course(&scenario), expected, "{policy} of {observations:?}");
    }
}

#[test]
fn an_optional_dependency_is_never_waited_for() {
    let mut all = wait_for(&["a", "b"], &json!({}));
    all.spec.wait_for.as_mut().unwrap()["dependencies"][1]["optional"] = json!(true);
    assert_eq!(course(&Scenario::new(all.clone(), &[ready(), refused()])), "write");
    assert_eq!(course(&Scenario::new(all.clone(), &[refused(), ready()])), "wait closed");
    all.spec.wait_for.as_mut().unwrap()["match"] = json!("Any");
    assert_eq!(
        course(&Scenario::new(all.clone(), &[refused(), ready()])),
        "wait closed",
        "it does not open the gate either"
    );
    all.spec.wait_for.as_mut().unwrap()["dependencies"][0]["optional"] = json!(true);
    assert_eq!(course(&Scenario::new(all, &[refused(), refused()])), "write", "all of them are optional");
}

#[test]
fn each_gate_holds_back_only_its_own_part() {
    let gates = |gates: &[&str]| wait_for(&["a"], &json!({"gates": gates, "onLoss": "Ignore"}));
    let edit = |scenario: &mut Scenario| {
        scenario.object.metadata.generation = Some(3);
        scenario.object.spec.template.insert("spec".to_owned(), json!({"containers": []}));
    };
    let empty = |scenario: &mut Scenario| scenario.live.as_mut().unwrap().spec.replicas = Some(0);
    let mut table = String::new();
    for names in [&["Create"][..], &["Update"], &["ScaleFromZero"], &["Update", "ScaleFromZero"]] {
        for (name, seen) in [("refused", refused()), ("ready", ready())] {
            let mut line = |state: &str, scenario: &Scenario| {
                writeln!(table, "{:20} {name:8} {state:9} {}", names.join("+"), course(scenario)).unwrap();
            };
            line("absent", &Scenario::new(gates(names), std::slice::from_ref(&seen)));
            let running = Scenario::new(gates(names), std::slice::from_ref(&seen)).running();
            line("unchanged", &running);
            let mut edited = running.clone();
            edit(&mut edited);
            line("edited", &edited);
            let mut at_zero = running.clone();
            empty(&mut at_zero);
            line("at zero", &at_zero);
            edit(&mut at_zero);
            line("both", &at_zero);
        }
    }
    let expected = "\
Create               refused  absent    wait closed
Create               refused  unchanged write
Create               refused  edited    write
Create               refused  at zero   write
Create               refused  both      write
Create               ready    absent    write
Create               ready    unchanged write
Create               ready    edited    write
Create               ready    at zero   write
Create               ready    both      write
Update               refused  absent    write
Update               refused  unchanged write
Update               refused  edited    write holds template closed
Update               refused  at zero   write
Update               refused  both      write holds template closed
Update               ready    absent    write
Update               ready    unchanged write
Update               ready    edited    write
Update               ready    at zero   write
Update               ready    both      write
ScaleFromZero        refused  absent    write holds replicas closed
ScaleFromZero        refused  unchanged write
ScaleFromZero        refused  edited    write
ScaleFromZero        refused  at zero   write holds replicas closed
ScaleFromZero        refused  both      write holds replicas closed
ScaleFromZero        ready    absent    write
ScaleFromZero        ready    unchanged write
ScaleFromZero        ready    edited    write
ScaleFromZero        ready    at zero   write
ScaleFromZero        ready    both      write
Update+ScaleFromZero refused  absent    write holds replicas closed
Update+ScaleFromZero refused  unchanged write
Update+ScaleFromZero refused  edited    write holds template closed
Update+ScaleFromZero refused  at zero   write holds replicas closed
Update+ScaleFromZero refused  both      write holds template, holds replicas closed
Update+ScaleFromZero ready    absent    write
Update+ScaleFromZero ready    unchanged write
Update+ScaleFromZero ready    edited    write
Update+ScaleFromZero ready    at zero   write
Update+ScaleFromZero ready    both      write
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn a_template_is_compared_by_its_hash_and_without_one_by_the_generation() {
    let object = wait_for(&["a"], &json!({"gates": ["Update"]}));
    let mut scenario = Scenario::new(object, &[refused()]).running();
    scenario.object.metadata.generation = Some(3);
    assert_eq!(course(&scenario), "write", "an edit outside the template");
    let live = scenario.live.as_mut().unwrap();
    live.metadata.annotations.remove(crate::deployment::TEMPLATE_ANNOTATION);
    assert_eq!(course(&scenario), "write holds template closed", "the written template is unknown");
    scenario.object.metadata.generation = Some(2);
    assert_eq!(course(&scenario), "write", "written for this generation");
}

#[test]
fn the_gates_of_an_invalid_spec_hold() {
    let mut object = wait_for(&["a"], &json!({"gates": ["Create", "Update"]}));
    object.spec.wait_for.as_mut().unwrap()["dependencies"][0]["periodSeconds"] = json!(0);
    let mut scenario = Scenario::new(object, &[]).running();
    assert_eq!(course(&scenario), "write", "no new template");
    scenario.object.metadata.generation = Some(3);
    scenario.object.spec.template.insert("spec".to_owned(), json!({}));
    assert_eq!(course(&scenario), "write holds template closed");
}

#[test]
fn the_deadline_counts_from_the_closing_despite_edits_and_restarts() {
    for (on_deadline, expected) in
        [("Fail", "wait expired"), ("KeepWaiting", "wait expired"), ("Proceed", "write proceeds")]
    {
        let others = json!({"deadlineSeconds": 60, "onDeadline": on_deadline});
        let mut scenario = Scenario::new(wait_for(&["a"], &others), &[refused()]);
        assert_eq!(course(&scenario), "wait closed next 60s");
        scenario.step(1_000, &[refused()]);
        // Another replica, generation and result: the status has the time of the closing.
        scenario.object.metadata.generation = Some(3);
        scenario.step(1_050, &[unknown()]);
        scenario.now = 1_059;
        assert_eq!(course(&scenario), "wait closed next 1s", "{on_deadline}");
        scenario.now = 1_060;
        assert_eq!(course(&scenario), expected);
        scenario.observations = vec![ready()];
        assert_eq!(course(&scenario), "write", "a success still opens the gate");
    }
}

#[test]
fn an_edited_deadline_counts_from_the_same_closing() {
    let mut scenario = Scenario::new(wait_for(&["a"], &json!({"deadlineSeconds": 60})), &[refused()]);
    scenario.step(1_000, &[refused()]);
    scenario.object.spec.wait_for.as_mut().unwrap()["deadlineSeconds"] = json!(100);
    scenario.object.metadata.generation = Some(3);
    scenario.now = 1_090;
    assert_eq!(course(&scenario), "wait closed next 10s");
}

#[test]
fn a_deployment_deleted_by_hand_closes_the_gate_again() {
    let mut scenario = Scenario::new(wait_for(&["a"], &json!({"deadlineSeconds": 60})), &[ready()]);
    scenario.step(1_000, &[ready()]);
    assert_eq!(scenario.object.status.as_ref().unwrap().gate_closed_time, None);
    scenario.now = 5_000;
    scenario.observations = vec![refused()];
    assert_eq!(course(&scenario), "wait closed next 60s", "a new deadline");
}

#[test]
fn a_held_update_has_a_deadline_of_its_own() {
    let others =
        json!({"gates": ["Update"], "deadlineSeconds": 60, "onDeadline": "Proceed", "onLoss": "Ignore"});
    let mut scenario = Scenario::new(wait_for(&["a"], &others), &[refused()]).running();
    scenario.step(1_000, &[refused()]);
    scenario.object.metadata.generation = Some(3);
    scenario.object.spec.template.insert("spec".to_owned(), json!({}));
    scenario.step(2_000, &[refused()]);
    assert_eq!(scenario.condition("UpdateHeld"), "True/TemplateHeld");
    assert_eq!(scenario.condition("Ready"), "False/WaitingForDependencies");
    scenario.now = 2_060;
    assert_eq!(course(&scenario), "write proceeds");
}
