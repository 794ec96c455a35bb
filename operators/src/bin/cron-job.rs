//! The binary of the operator for `CronJob`s.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_operators::cron_job::program().main()
}
