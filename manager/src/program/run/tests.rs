use super::*;
use crate::queue::SettingsProblem;

#[test]
fn invalid_settings_are_wrong_input_and_a_duplicate_name_is_not() {
    let problem = |field: &str| SettingsProblem {
        field: field.to_owned(),
        value: "0".to_owned(),
        reason: "is too little".to_owned(),
    };
    let problems = vec![problem("workers"), problem("queue.retryShare")];
    let refused: BoxError = RegisterError::Settings { name: "web".into(), problems }.into();
    assert!(is_wrong_input(&*refused));
    let lines = r#"controller "web": workers 0 is too little
controller "web": queue.retryShare 0 is too little"#;
    assert_eq!(Chain(&*refused).to_string(), lines);
    let proxy = || ConnectError::Proxy { server: Box::new("https://edge".parse().unwrap()) };
    let behind_a_proxy: BoxError = RegisterError::Connect { name: "edge".into(), source: proxy() }.into();
    assert!(is_wrong_input(&*behind_a_proxy) && is_wrong_input(&proxy()), "for any cluster");
    let runs_once: BoxError = RegisterError::RunsOnce { name: "sweep".into() }.into();
    assert!(is_wrong_input(&*runs_once), "onLost: Exit would prevent the error");
    let taken: BoxError = RegisterError::DuplicateName { part: "controller", name: "web".into() }.into();
    assert!(!is_wrong_input(&*taken));
}
