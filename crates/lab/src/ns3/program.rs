//! The scenario's program: compiled once, run for each kind of flow.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use analysis::tcp_failover::{Arrival, FailoverConfig, Flow, Kind, Model, RecoveryPolicy, ScheduleKind};

use super::Ns3Error;
use super::flows::{self, OutageFlows};

/// The scenario.
const SOURCE: &str = include_str!("../../ns3/failover.cc");
/// The modules of ns-3 that it needs, as pkg-config names them.
const MODULES: [&str; 5] = ["ns3-internet", "ns3-point-to-point", "ns3-traffic-control", "ns3-network", "ns3-core"];
/// Characters of what a program said that an error repeats.
const MESSAGE_CHARS_MAX: usize = 400;
/// By how much ns-3's retransmission timeout exceeds the smoothed round-trip time at least, where the schedule does not state it: its default.
const RTO_MARGIN_S: f64 = 0.001;

/// The compiled scenario. A temporary directory is removed with the value.
#[derive(Debug)]
pub struct Ns3 {
    program: PathBuf,
    version: String,
    temporary: Option<PathBuf>,
}

impl Drop for Ns3 {
    fn drop(&mut self) {
        if let Some(directory) = &self.temporary {
            // What cannot be removed is found in the directory of temporary files.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

impl Ns3 {
    /// The version of ns-3 that is installed.
    ///
    /// # Errors
    /// ns-3, g++ or pkg-config is not installed.
    pub fn installed_version() -> Result<String, Ns3Error> {
        succeed("g++", Command::new("g++").arg("--version"), "g++")?;
        let version = succeed("pkg-config", Command::new("pkg-config").args(["--modversion", MODULES[0]]), "ns-3")?;
        Ok(version.trim().to_owned())
    }

    /// Compiles the scenario in a directory, which keeps it, or in a temporary one. What a directory keeps is not compiled again.
    ///
    /// # Errors
    /// ns-3 or the compiler is not installed, or they refuse the scenario, or the directory cannot be written.
    pub fn build(directory: Option<&Path>) -> Result<Self, Ns3Error> {
        let version = Self::installed_version()?;
        let own = directory
            .is_none()
            .then(|| std::env::temp_dir().join(format!("mainstay-ns3-{:016x}", packet_io::random::number())));
        let directory = directory.map(Path::to_owned).or_else(|| own.clone()).unwrap_or_default();
        // A temporary directory must be a new one.
        let created = if own.is_some() { fs::create_dir(&directory) } else { fs::create_dir_all(&directory) };
        created.map_err(|error| Ns3Error::File { path: directory.clone(), error })?;
        let built = Self { program: directory.join(format!("failover-{version}")), version, temporary: own };
        built.compile(&directory.join("failover.cc"))?;
        Ok(built)
    }

    /// The version of ns-3 that the scenario was compiled against.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    fn compile(&self, source: &Path) -> Result<(), Ns3Error> {
        let is_kept = self.program.exists() && fs::read_to_string(source).is_ok_and(|kept| kept == SOURCE);
        if is_kept {
            return Ok(());
        }
        // The source is written last: a program without it is not taken for a compiled one.
        let [unfinished, new_source] = ["new", "new.cc"].map(|ending| self.program.with_extension(ending));
        fs::write(&new_source, SOURCE).map_err(|error| Ns3Error::File { path: new_source.clone(), error })?;
        let found =
            succeed("pkg-config", Command::new("pkg-config").args(["--cflags", "--libs"]).args(MODULES), "ns-3")?;
        let output = output(&mut compiler(&new_source, &unfinished, &flags(&found)), "g++")?;
        if !output.status.success() {
            return Err(Ns3Error::NotCompiled { version: self.version.clone(), message: first_error(&output) });
        }
        for (from, to) in [(&unfinished, self.program.as_path()), (&new_source, source)] {
            fs::rename(from, to).map_err(|error| Ns3Error::File { path: to.to_owned(), error })?;
        }
        Ok(())
    }

    /// Runs `runs` flows of a kind for each outage in seconds, the first with `first_seed`; flows begin as `config.arrival` states.
    ///
    /// # Errors
    /// A parameter is out of its range, or the program fails.
    pub fn flows(
        &self,
        config: &FailoverConfig,
        kind: Kind,
        outages_s: &[f64],
        (first_seed, runs): (u64, u32),
    ) -> Result<Vec<OutageFlows>, Ns3Error> {
        let arguments = arguments(config, kind, outages_s, (first_seed, runs))?;
        let started = Command::new(&self.program).args(arguments).stdin(Stdio::null()).output();
        let output = started.map_err(|error| Ns3Error::NotStarted { path: self.program.clone(), error })?;
        if !output.status.success() {
            return Err(Ns3Error::Failed { status: output.status.to_string(), message: last_of(&output.stderr) });
        }
        Ok(flows::read(&String::from_utf8_lossy(&output.stdout), kind, outages_s, runs)?)
    }
}

/// The program's command line.
fn arguments(
    config: &FailoverConfig,
    kind: Kind,
    outages_s: &[f64],
    (first_seed, runs): (u64, u32),
) -> Result<Vec<String>, Ns3Error> {
    if config.delayed_ack_s > 0.0 {
        return Err(Ns3Error::Unsupported { option: "--delayed-ack" });
    }
    let model = Model::new(config)?;
    let schedule = model.schedule(kind);
    let Flow { segments, delivered, rtt_s } = config.flow(kind);
    let timeout_s = schedule.data.timeout_s;
    // Linux's timeout is the smoothed round-trip time and a margin. That of the paper's table is fixed.
    let (rto_min_s, rto_margin_s) = match config.schedule {
        ScheduleKind::Linux | ScheduleKind::Doubling => (timeout_s - rtt_s, timeout_s - rtt_s),
        ScheduleKind::Thesis => (timeout_s, RTO_MARGIN_S),
    };
    let outages: Vec<String> = outages_s.iter().map(f64::to_string).collect();
    let options = [
        ("kind", kind.name().to_owned()),
        ("outages", outages.join(",")),
        ("runs", runs.to_string()),
        ("first-seed", first_seed.to_string()),
        ("rtt", rtt_s.to_string()),
        ("segments", segments.to_string()),
        ("delivered", delivered.to_string()),
        ("loss", config.loss.to_string()),
        ("syn-loss", config.syn_loss.to_string()),
        ("initial-window", config.initial_window.to_string()),
        ("window-max", config.window_max.to_string()),
        ("syn-timeout", schedule.syn.timeout_s.to_string()),
        ("rto-min", rto_min_s.to_string()),
        ("rto-margin", rto_margin_s.to_string()),
        ("collapses-threshold", schedule.collapses_threshold.to_string()),
        ("starts-with-outage", (config.arrival == Arrival::Start).to_string()),
        ("resends-all", (config.recovery == RecoveryPolicy::All).to_string()),
        ("recovery-time", config.local_recovery_s.to_string()),
    ];
    Ok(options.map(|(name, value)| format!("--{name}={value}")).into())
}

/// The command that compiles the scenario.
fn compiler(source: &Path, program: &Path, flags: &[String]) -> Command {
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-O2", "-o"]).arg(program).arg(source).args(flags);
    command
}

/// The flags of pkg-config that concern the compiler: directories and libraries. Those of Debian's package also name development files of
/// other libraries, which need not be there. Libraries in other directories are found when the program runs.
fn flags(found: &str) -> Vec<String> {
    let is_wanted =
        |flag: &&str| ["-I", "-L", "-l"].iter().any(|start| flag.starts_with(start)) && !flag.contains('\\');
    let wanted = found.split_whitespace().filter(is_wanted);
    let with_path = |flag: &str| match flag.strip_prefix("-L") {
        Some(directory) => vec![flag.to_owned(), format!("-Wl,-rpath,{directory}")],
        None => vec![flag.to_owned()],
    };
    wanted.flat_map(with_path).collect()
}

/// The standard output of a command, whose success shows that something is installed.
fn succeed(program: &'static str, command: &mut Command, what: &'static str) -> Result<String, Ns3Error> {
    let output = output(command, program)?;
    if !output.status.success() {
        return Err(Ns3Error::NotInstalled { what, reason: last_of(&output.stderr) });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn output(command: &mut Command, program: &'static str) -> Result<Output, Ns3Error> {
    command.stdin(Stdio::null()).output().map_err(|error| {
        let reason = if error.kind() == ErrorKind::NotFound { "no such program".to_owned() } else { error.to_string() };
        Ns3Error::NotInstalled { what: program, reason }
    })
}

/// The end of what a program said.
fn last_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skipped = text.chars().count().saturating_sub(MESSAGE_CHARS_MAX);
    text.chars().skip(skipped).collect()
}

/// The compiler's first error.
fn first_error(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().find(|line| line.contains("error"));
    first.map_or_else(|| last_of(&output.stderr), |line| line.chars().take(MESSAGE_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(config: &FailoverConfig, kind: Kind) -> String {
        arguments(config, kind, &[0.05, 3.0], (7, 41)).expect("valid").join(" ")
    }

    #[test]
    fn command_line_has_the_flow_of_its_kind_and_the_timeouts_of_the_schedule() {
        let doubling = FailoverConfig { schedule: ScheduleKind::Doubling, queue_s: 0.05, ..FailoverConfig::default() };
        let bulk = line(&doubling, Kind::Bulk);
        for part in
            ["--kind=bulk", "--outages=0.05,3 ", "--runs=41", "--first-seed=7", "--segments=1000", "--delivered=500"]
        {
            assert!(bulk.contains(part), "{part} is not in {bulk}");
        }
        // Queues are part of a bulk flow's round trip, and its timeout follows the round trip that is measured.
        assert!(
            bulk.contains("--rtt=0.15000000000000002") && bulk.contains("--rto-min=0.2 --rto-margin=0.2 "),
            "{bulk}"
        );
        assert!(bulk.contains("--syn-timeout=1 ") && bulk.contains("--collapses-threshold=false"), "{bulk}");
        let thesis = FailoverConfig {
            schedule: ScheduleKind::Thesis,
            arrival: Arrival::Start,
            recovery: RecoveryPolicy::All,
            ..FailoverConfig::default()
        };
        let syn = line(&thesis, Kind::Syn);
        for part in
            ["--kind=syn ", "--rtt=0.1 ", "--segments=9", "--syn-timeout=3 ", "--rto-min=1.5 --rto-margin=0.001 "]
        {
            assert!(syn.contains(part), "{part} is not in {syn}");
        }
        assert!(syn.contains("--collapses-threshold=true --starts-with-outage=true --resends-all=true"), "{syn}");
    }

    #[test]
    fn parameters_that_the_scenario_has_not_are_refused() {
        let delayed = FailoverConfig { delayed_ack_s: 0.1, ..FailoverConfig::default() };
        let error = arguments(&delayed, Kind::Short, &[1.0], (1, 1)).expect_err("not supported");
        assert!(error.to_string().contains("no --delayed-ack"), "{error}");
        let wrong = FailoverConfig { loss: 0.9, ..FailoverConfig::default() };
        assert!(matches!(arguments(&wrong, Kind::Short, &[1.0], (1, 1)), Err(Ns3Error::Config(_))));
    }

    #[test]
    fn every_option_of_the_command_line_is_one_of_the_scenario() {
        for argument in arguments(&FailoverConfig::default(), Kind::Bulk, &[1.0], (1, 1)).expect("valid") {
            let name = argument.trim_start_matches("--").split('=').next().expect("a name");
            assert!(SOURCE.contains(&format!("AddValue(\"{name}\"")), "{name}");
        }
    }

    #[test]
    fn directories_and_libraries_are_taken_from_succeed() {
        let found = "-I/usr\\; -I/opt/ns3/include -L/opt/ns3/lib -lns3-core /usr/lib/libsqlite3.so \n";
        assert_eq!(flags(found), ["-I/opt/ns3/include", "-L/opt/ns3/lib", "-Wl,-rpath,/opt/ns3/lib", "-lns3-core"]);
    }

    #[test]
    fn what_is_not_installed_is_named_with_the_remedy() {
        let missing = succeed("g++", &mut Command::new("/no/such/program"), "g++").expect_err("missing").to_string();
        assert!(
            missing.contains("g++ is not installed (no such program)") && missing.contains("libns3-dev"),
            "{missing}"
        );
        let fails = succeed("pkg-config", &mut Command::new("false"), "ns-3").expect_err("it fails").to_string();
        assert!(fails.starts_with("ns-3 is not installed"), "{fails}");
    }
}
