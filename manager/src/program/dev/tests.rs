use super::*;
use crate::config::LogFormat;
use crate::config::tests::Shop;

fn program() -> Program {
    Program::new("shop", "1.2.3", "Runs the shop").controllers(["orders"]).section::<Shop>("shop")
}

fn parsed(args: &[&str]) -> Result<DevArgs, Failure> {
    let matches = command().try_get_matches_from(["dev"].iter().chain(args)).map_err(Failure::from)?;
    program().dev(&matches)
}

#[test]
fn without_a_file_nothing_is_elected_and_all_ports_are_on_loopback() {
    let args = parsed(&[]).unwrap();
    let configuration = &args.loaded.configuration;
    assert!(!configuration.leader_election.enabled);
    for address in [
        &configuration.health.bind_address,
        &configuration.metrics.bind_address,
        &configuration.inspect.bind_address,
    ] {
        assert_eq!(address.to_string(), "127.0.0.1:0");
    }
    let level = configuration.logging.level.to_string();
    assert!(level.starts_with("info,mainstay::=warn,"), "{level}: the program's own lines are logged");
    assert!(args.source.is_none());
    assert!(parsed(&["--leader-elect"]).unwrap().loaded.configuration.leader_election.enabled);
    let args = parsed(&["--log-level", "debug"]).unwrap();
    assert_eq!(args.loaded.configuration.logging.level.to_string(), "debug");
}

#[test]
fn wrong_arguments_are_refused() {
    for args in [
        &["--kubeconfig", "a", "--data", "b"][..],
        &["--kubeconfig", "a", "--server", "real"],
        &["--data", "b", "--server", "real"],
        &["--server", "fake"],
        &["--samples", "/no/such/folder"],
        &["--config", "/no/such/file"],
    ] {
        assert_eq!(parsed(args).unwrap_err().exit, Exit::WrongInput, "{args:?}");
    }
}

#[test]
fn the_configuration_of_the_program_is_the_default() {
    let text = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
                shop: {maxOrders: 7}\n";
    let program = program().dev_configuration(text);
    let matches = command().get_matches_from(["dev"]);
    let args = program.dev(&matches).unwrap();
    let configuration = &args.loaded.configuration;
    assert_eq!(configuration.logging.format, LogFormat::Json, "the default, which is not that of dev");
    assert!(!configuration.leader_election.enabled, "the cluster of dev has one replica");
}

#[test]
fn a_program_may_have_a_command_dev_of_its_own() {
    let own = Command::new("dev").about("Starts the shop");
    let program = program().command(own, |_| std::process::ExitCode::SUCCESS);
    let matches = program.command_line().get_matches_from(["shop", "dev"]);
    assert_eq!(matches.subcommand_name(), Some("dev"));
}
