use super::*;
use crate::config::tests::{Shop, shop_schema};

/// Parses a command line, and returns the outcome, standard output and standard error.
fn run(args: &[&str]) -> (Parsed, String, String) {
    let crd = |name: &str| {
        let mut crd = CustomResourceDefinition::default();
        crd.metadata.name = Some(name.to_owned());
        // Texts that some YAML parsers read as another type, and a text of several lines.
        crd.spec.names.short_names =
            Some(["on", "yes", "1.0", "012", "1:30", "null", "a: b"].map(str::to_owned).into());
        crd.spec.group = format!("{}\n\n  indented # no comment", "word ".repeat(40));
        crd
    };
    let program = Program::new("shop", "1.2.3", "Runs the shop")
        .crds([crd("orders.shop.dev"), crd("invoices.shop.dev")])
        .controllers(["orders", "invoices"])
        .section::<Shop>("shop")
        .command(ConfigFlags::add_to(Command::new("try").about("Try it")), |_| ExitCode::SUCCESS);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = ["shop"].iter().chain(args).map(OsString::from);
    let parsed = program.parse(args, &mut out, &mut err);
    (parsed, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[track_caller]
fn done(args: &[&str], exit: Exit, out: &str, err: &str) {
    let (parsed, written, complained) = run(args);
    assert!(matches!(parsed, Parsed::Done(done) if done == exit), "{parsed:?}, {written}, {complained}");
    assert_eq!(written, out);
    assert_eq!(complained, err);
}

/// Writes a file, which is removed when the first element of the pair is dropped.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manager.yaml");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

#[test]
fn version_is_one_line() {
    done(&["version"], Exit::Success, "shop 1.2.3\n", "");
    done(&["--version"], Exit::Success, "shop 1.2.3\n", "");
}

#[test]
fn help_names_every_command_on_standard_output() {
    let (parsed, out, err) = run(&["--help"]);
    assert!(matches!(parsed, Parsed::Done(Exit::Success)), "{parsed:?}");
    assert_eq!(err, "");
    let dev = "  dev        Start a cluster on this machine, apply samples, run the manager and print what \
               happens\n";
    assert_eq!(out.contains(dev), cfg!(feature = "dev"), "{out}");
    assert_eq!(
        out.replace(dev, ""),
        "Runs the shop\n\nUsage: shop <COMMAND>\n\nCommands:\n  \
           run        Run the manager\n  \
           try        Try it\n  \
           inspect    Inspect a running manager\n  \
           crd        Print the CustomResourceDefinitions, for kubectl apply -f -\n  \
           rbac       Print the roles that the program needs\n  \
           manifests  Write the files that install the program in a cluster\n  \
           config     Check and print configuration files\n  \
           version    Print the version\n\nOptions:\n  \
           -h, --help     Print help\n  \
           -V, --version  Print version\n"
    );
}

#[test]
fn a_wrong_command_line_exits_with_code_2() {
    for args in
        [&["rum"][..], &[], &["config"], &["config", "validate"], &["run", "--confg", "x"], &["version", "x"]]
    {
        let (parsed, out, err) = run(args);
        assert!(matches!(parsed, Parsed::Done(Exit::WrongInput)), "{args:?}: {parsed:?}");
        assert_eq!(out, "", "{args:?}");
        assert!(!err.is_empty(), "{args:?}");
    }
    assert_eq!([Exit::Success, Exit::Failure, Exit::WrongInput].map(|exit| exit as u8), [0, 1, 2]);
}

#[test]
fn without_a_command_help_is_on_standard_error() {
    done(&[], Exit::WrongInput, "", &run(&["--help"]).1);
    done(&["config"], Exit::WrongInput, "", &run(&["config", "--help"]).1);
}

#[test]
fn a_wrong_flag_value_is_refused_with_the_expected_form() {
    done(
        &["run", "--log-level", "inof"],
        Exit::WrongInput,
        "",
        "error: invalid value 'inof' for '--log-level <LEVEL>': expected off, error, warn, info, debug or \
         trace, with MODULE=LEVEL after commas for single modules, such as info,mainstay::queue=debug; did \
         you mean info?\n\n\
         For more information, try '--help'.\n",
    );
    done(
        &["run", "--log-format", "klog"],
        Exit::WrongInput,
        "",
        "error: invalid value 'klog' for '--log-format <FORMAT>': expected json or text\n\n\
         For more information, try '--help'.\n",
    );
}

#[test]
fn flags_of_manifests_and_roles_are_checked() {
    for (command, flag, value, form) in [
        ("rbac", "namespace", "Shop", "the name of a namespace"),
        ("rbac", "namespace", "", "the name of a namespace"),
        ("manifests", "namespace", "a.b", "the name of a namespace"),
        ("manifests", "image", "web: 1", "an image such as registry.example.com/shop:1.0"),
        ("manifests", "image", "web:", "an image such as registry.example.com/shop:1.0"),
        ("run", "leader-election-namespace", "Shop", "the name of a namespace, or \"\""),
    ] {
        let (parsed, out, err) = run(&[command, &format!("--{flag}={value}")]);
        assert!(matches!(parsed, Parsed::Done(Exit::WrongInput)) && out.is_empty(), "{parsed:?}, {out}");
        assert!(err.contains(value) && err.contains(&format!("expected {form}")), "{err}");
    }
    for image in ["web", "localhost:5000/shop/web:1.0", "ghcr.io/shop/web@sha256:0a1b"] {
        let (parsed, _, err) = run(&["manifests", "--image", image]);
        assert!(matches!(parsed, Parsed::Manifests(_)), "{parsed:?}, {err}");
    }
}

#[test]
fn print_defaults_includes_the_sections_of_the_program() {
    let text = shop_schema().controllers(["orders", "invoices"]).default_file("shop");
    done(&["config", "print-defaults"], Exit::Success, &text, "");
    assert!(text.contains("  # The most open orders.\n"), "{text}");
}

#[test]
fn the_schema_lists_the_controllers_of_the_program() {
    let (parsed, out, err) = run(&["config", "schema"]);
    assert!(matches!(parsed, Parsed::Done(Exit::Success)), "{parsed:?}, {err}");
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema, shop_schema().controllers(["orders", "invoices"]).json());
    assert_eq!(schema["properties"]["shop"]["properties"]["currency"]["x-mainstay-applies"], "restart");
}

/// `config` has the names of the flags too, and must not depend on clap.
#[test]
fn every_overriding_flag_is_an_origin_by_its_name() {
    let command = ConfigFlags::add_to(Command::new("run"));
    let over = |help: &str| Some(help.rsplit_once("[over ")?.1.strip_suffix(']')?.to_owned());
    let mut found = 0;
    for flag in command.get_arguments() {
        let (Some(name), Some(path)) =
            (flag.get_long(), flag.get_help().and_then(|help| over(&help.to_string())))
        else {
            continue;
        };
        let value = match name {
            "leader-elect" => "true",
            "log-level" => "debug",
            "log-format" => "text",
            "leader-election-namespace" => "shop",
            _ => "127.0.0.1:0",
        };
        let (parsed, _, err) = run(&["run", &format!("--{name}={value}")]);
        let Parsed::Run(run) = parsed else { panic!("{parsed:?}, {err}") };
        assert_eq!(run.loaded.origins.of(&path).to_string(), format!("flag --{name}"), "{path}");
        found += 1;
    }
    assert_eq!(found, 7);
}

#[test]
fn a_valid_file_or_directory_is_reported_as_valid() {
    let (folder, path) = file(&format!("{HEAD}controllers: {{orders: {{workers: 4}}}}\n"));
    for path in [path.as_path(), folder.path()] {
        let path = path.display().to_string();
        done(&["config", "validate", &path], Exit::Success, &format!("{path}: valid\n"), "");
    }
}

#[test]
fn a_wrong_file_gives_one_line_per_error_and_code_2() {
    let (_folder, path) = file(&format!(
        "{HEAD}controllers:\n  order: {{workers: 0}}\nshutdown: {{gracePeriod: 30}}\nshop: {{maxOrders: 0}}\n"
    ));
    let name = path.display().to_string();
    let lines = format!(
        "{name}:5:25: shutdown.gracePeriod: 30; expected a duration such as 30s, 5ms, 2m or 1h30m, with a \
         unit: 30s or 30ms\n\
         {name}: controllers.order: unknown controller; expected orders, invoices or \"*\"; did you mean \
         orders?\n\
         {name}: controllers.order.workers: 0; expected a whole number from 1 to 1000\n\
         {name}: shop.maxOrders: 0; expected a whole number from 1 to 1000\n"
    );
    done(&["config", "validate", &name], Exit::WrongInput, "", &lines);
    done(&["run", "--config", &name], Exit::WrongInput, "", &lines);
    done(
        &["run", "--config", "/nonexistent"],
        Exit::WrongInput,
        "",
        "/nonexistent: cannot be read: No such file or directory (os error 2)\n",
    );
}

#[test]
fn conflicting_flags_are_wrong_input() {
    done(
        &["run", "--metrics-bind-address", "0.0.0.0:8081"],
        Exit::WrongInput,
        "",
        "flags: metrics.bindAddress: 0.0.0.0:8081 collides with health.bindAddress 0.0.0.0:8081; \
         expected another port or host\n",
    );
}

#[test]
fn run_loads_the_file_and_applies_the_flags() {
    let (folder, _) = file(&format!("{HEAD}leaderElection: {{leaseName: shop}}\nlogging: {{level: warn}}\n"));
    let folder = folder.path().display().to_string();
    let (parsed, out, err) = run(&[
        "run",
        "--config",
        &folder,
        "--leader-elect=false",
        "--log-level=debug",
        "--metrics-bind-address=",
        "--kubeconfig",
        "k",
        "--context",
        "c",
    ]);
    let Parsed::Run(run) = parsed else { panic!("{parsed:?}, {err}") };
    assert_eq!((out, err), (String::new(), String::new()));
    assert_eq!(run.loaded.configuration.leader_election.lease_name, "shop");
    assert!(!run.loaded.configuration.leader_election.enabled);
    assert_eq!(run.loaded.configuration.logging.level.to_string(), "debug");
    assert_eq!(run.loaded.configuration.metrics.bind_address.socket(), None);
    assert_eq!(run.source.unwrap().file(), PathBuf::from(folder).join("manager.yaml"));
    assert_eq!((run.kubeconfig, run.context), (Some(PathBuf::from("k")), Some("c".to_owned())));
}

#[test]
fn without_a_file_run_uses_the_defaults() {
    let (parsed, ..) = run(&["run", "--leader-elect"]);
    let Parsed::Run(run) = parsed else { panic!("{parsed:?}") };
    let default = shop_schema().from_overrides(&Overrides::default()).unwrap();
    assert_eq!(run.loaded.configuration, default.configuration);
    assert!(run.loaded.configuration.leader_election.enabled && run.source.is_none());
}

#[test]
fn an_own_command_gets_its_flags() {
    let (parsed, ..) = run(&["try", "--log-format", "text"]);
    let Parsed::Own(0, matches) = parsed else { panic!("{parsed:?}") };
    let flags = ConfigFlags::of(&matches).unwrap();
    assert_eq!(
        flags.load(&ConfigSchema::new()).unwrap().configuration.logging.format,
        crate::config::LogFormat::Text
    );
}

#[test]
fn crds_are_yaml_documents_that_kubectl_can_parse() {
    let (parsed, out, err) = run(&["crd"]);
    assert!(matches!(parsed, Parsed::Done(Exit::Success)), "{parsed:?}, {err}");
    assert_eq!(run(&["crd"]).1, out, "the same bytes each time");
    assert_eq!(out.lines().filter(|line| *line == "---").count(), 2);
    let read: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&out).unwrap();
    let tricky = read[0].spec.names.short_names.clone().unwrap();
    assert_eq!(tricky, ["on", "yes", "1.0", "012", "1:30", "null", "a: b"]);
    assert!(
        out.contains("- 'yes'") || out.contains("- \"yes\""),
        "kubectl reads YAML 1.1, where yes is true: {out}"
    );
    assert!(read[0].spec.group.ends_with(" \n\n  indented # no comment"), "{}", read[0].spec.group);
    let names: Vec<_> = read.iter().filter_map(|crd| crd.metadata.name.as_deref()).collect();
    assert_eq!(names, ["orders.shop.dev", "invoices.shop.dev"]);
    assert!(
        out.starts_with("---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"),
        "{out}"
    );
}

/// A writer that always fails.
struct Broken(io::ErrorKind);

impl Write for Broken {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_is_success_and_a_full_disk_is_failure() {
    for (kind, exit) in
        [(io::ErrorKind::BrokenPipe, Exit::Success), (io::ErrorKind::StorageFull, Exit::Failure)]
    {
        let program = Program::new("shop", "1.2.3", "Runs the shop");
        let args = ["shop", "config", "print-defaults"].map(OsString::from);
        let parsed = program.parse(args, &mut Broken(kind), &mut Vec::new());
        assert!(matches!(parsed, Parsed::Done(done) if done == exit), "{kind}: {parsed:?}");
    }
}
