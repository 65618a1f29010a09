//! What the command line takes, and that one thing has one name.

use clap::{Arg, Command as ClapCommand};

use super::*;

/// A command line as it is read.
pub(super) fn read(line: &str) -> Result<Cli, clap::Error> {
    Cli::read(line.split(' ').map(OsString::from))
}

/// Every command and the commands below it, each by its full name.
fn all_commands(command: &ClapCommand, name: &str, visit: &mut impl FnMut(&str, &ClapCommand)) {
    visit(name, command);
    for below in command.get_subcommands() {
        all_commands(below, &format!("{name} {}", below.get_name()), visit);
    }
}

/// Every option that is shown, with its command.
fn all_options(mut visit: impl FnMut(&str, &Arg)) {
    all_commands(&Cli::grouped_command(), "mainstay", &mut |name, command| {
        command.get_arguments().filter(|option| !option.is_hide_set()).for_each(|option| visit(name, option));
    });
}

#[test]
fn the_command_line_is_consistent() {
    Cli::grouped_command().debug_assert();
}

#[test]
fn filters_of_flows_reach_the_request() {
    let line = "mainstay flows --protocol tcp --source 10.0.0.0/8 --port 443 --role master --limit 5 --json";
    let Command::Inspect(InspectCommand::Flows(args)) = read(line).expect("it is right").command else {
        panic!("another command was understood");
    };
    let filter = args.filter();
    assert_eq!((filter.protocol.as_deref(), filter.port), (Some("tcp"), Some(443)));
    assert_eq!((filter.source.as_deref(), filter.role.as_deref()), (Some("10.0.0.0/8"), Some("master")));
    assert_eq!((args.limit, args.json), (5, true));
}

#[test]
fn durations_have_units() {
    let seconds = |line: &str| match read(line).map(|cli| cli.command) {
        Ok(Command::Inspect(InspectCommand::Trace(args))) => Ok(args.seconds),
        Ok(_) => panic!("another command was understood"),
        Err(error) => Err(error.to_string()),
    };
    for (text, expected) in [("5s", 5.0), ("0.5s", 0.5), ("200ms", 0.2), ("2m", 120.0), ("1d", 86_400.0)] {
        assert_eq!(seconds(&format!("mainstay trace --duration {text}")), Ok(expected));
    }
    for text in ["5", "s", "-1s", "1e3s", "99ms", "25h", "nans"] {
        let error = seconds(&format!("mainstay trace --duration={text}")).expect_err(text);
        assert!(error.contains("a number and a unit, such as 500ms, 2.5s or 1m, from 100ms to 1d"), "{error}");
    }
}

#[test]
fn names_of_earlier_releases_are_understood() {
    let lines = [
        "mainstay status --events",
        "mainstay flows --follow --seconds 5",
        "mainstay trace --count 5 --seconds 0.5",
        "mainstay capture --write - --count 5 --seconds 5",
        "mainstay top --interval 0.5 --flows-max 100",
        "mainstay reload --check-only",
        "mainstay replay c.pcap --config g.toml --write out.pcapng --ignore-checksums",
    ];
    let studies = [
        "mainstay study replication c.pcap --thresholds 0,50 --batch-ms 10 --digest-interval 5 --failover-every 10 --out folder",
        "mainstay study redundancy c.pcap --out folder",
    ];
    let of_lab = [
        "mainstay demo --seconds 2 --rtt-ms 20",
        "mainstay simulate --seed 3 --write s.toml",
        "mainstay synthesize replication --seconds 2 --burst-peak 2 --burst-ms 50 --round-trip-ms 20 --write -",
        "mainstay synthesize redundancy --seconds 2 --write -",
        "mainstay link --from a --to b",
        "mainstay bench bulk --seconds 0.2",
        "mainstay bench packets --seconds 0.2 --flows 64",
        "mainstay bench lazy --seconds 1 --settle-seconds 1",
        "mainstay bench replication --rtts-ms 0,50 --give-up 6 --lateness-ms 2.5",
        "mainstay bench sync --seconds 0.3 --ramp-per-s 100",
    ];
    let studies = studies.iter().filter(|_| cfg!(feature = "studies"));
    for line in lines.iter().chain(studies).chain(of_lab.iter().filter(|_| cfg!(feature = "lab"))) {
        assert!(read(line).is_ok(), "{line}: {}", read(line).expect_err("it is wrong"));
    }
}

#[test]
fn an_option_has_one_name_in_all_commands() {
    let former = ["write", "out", "count", "flows-max", "check-only", "seconds", "ignore-checksums"];
    all_options(|command, option| {
        let Some(name) = option.get_long() else { return };
        // `flows --count` counts: it takes no number.
        let takes_value = option.get_action().takes_values();
        assert!(!former.contains(&name) || (name == "count" && !takes_value), "{command} --{name}");
        assert!(!name.ends_with("-ms") && !name.ends_with("seconds"), "{command} --{name} has no unit in its value");
        let value = option.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default();
        assert!(!["MS", "SECONDS", "MILLISECONDS"].contains(&value.as_str()), "{command} --{name} {value}");
        if name == "limit" {
            assert_eq!(value, "COUNT", "{command}");
        }
        if name == "output" {
            assert!(["FILE", "FOLDER"].contains(&value.as_str()), "{command}: {value}");
            assert_eq!(option.get_short(), Some('o'), "{command}");
        }
    });
}

#[test]
fn options_and_commands_have_help_texts() {
    all_options(|command, option| {
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty() && !help.ends_with('.'), "{command} {}: {help:?}", option.get_id());
        if option.get_long() == Some("json") {
            assert!(help.contains("JSON object"), "{command}: {help:?}");
        }
    });
    all_commands(&Cli::grouped_command(), "mainstay", &mut |name, command| {
        assert!(command.get_about().is_some(), "{name}");
    });
}
