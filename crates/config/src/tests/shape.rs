//! All mistakes of a file are reported at once: unknown keys, wrong types, missing keys, and what the values mean.

use super::*;

#[test]
fn mistakes_of_every_kind_are_reported_in_one_run() {
    let text = GOOD
        .replacen("nodes = 2", "nodes = 2\nmetricss = \"127.0.0.1:9464\"\ncolour = \"blue\"", 1)
        .replacen("interface = \"eth0\"", "interfaec = \"eth0\"", 1)
        .replacen("to = \"0.0.0.0/0\"", "to = 7", 1)
        .replacen("via = \"192.0.2.254\"\n", "", 1)
        .replacen("port = 80", "prot = 80", 1)
        .replacen("address = \"10.99.0.2:3781\"", "adress = \"10.99.0.2\"", 1)
        .replacen("interval = \"10ms\"", "interval = 10\nmultiplier = \"three\"", 1);
    let expected = [
        "mainstay.toml:5:1: syntax: unknown field `metricss`: did you mean `metrics`? If not, remove it",
        "mainstay.toml:6:1: syntax: unknown field `colour`: remove it, or write one of `id`, `name`, `nodes`, `priority`, `announce_refresh`, \
         `control_socket`, `metrics`, `log`, `log_format`, `log_per_s`",
        "mainstay.toml:9:1: syntax: unknown field `interfaec`: did you mean `interface`? If not, remove it",
        "mainstay.toml:15:1: syntax: missing field `via`: add it to this section",
        "mainstay.toml:16:6: syntax: invalid type: integer `7`, expected a string: write the value as \
         docs/configuration.md shows it",
        "mainstay.toml:30:1: syntax: unknown field `prot`: did you mean `port`? If not, remove it",
        "mainstay.toml:36:1: syntax: unknown field `adress`: did you mean `address`? If not, remove it",
        "mainstay.toml:36:10: replication peer 1: \"10.99.0.2\" is not an IP address with a port: write one like \
         192.0.2.1:3781 or [2001:db8::1]:3781",
        "mainstay.toml:38:12: syntax: invalid type: integer `10`, expected a string: write the value as \
         docs/configuration.md shows it",
        "mainstay.toml:39:14: syntax: invalid type: string \"three\", expected u8: write the value as docs/configuration.md \
         shows it",
    ];
    assert_eq!(said(&text).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_key_that_is_there_twice_does_not_hide_other_mistakes() {
    let text = GOOD.replacen("nodes = 2", "nodes = 2\nnodes = 3\nlgo = \"info\"", 1);
    let found = said(&text);
    let lines: Vec<&str> = found.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("duplicate key") && lines[1].contains("`log`"), "{found}");
}

#[test]
fn a_missing_key_of_any_type_does_not_hide_other_mistakes() {
    // A number, a text and a list in turn.
    for key in ["id = 1\n", "local = \"10.99.0.1:3781\"\n", "source = [\"10.0.0.0/24\"]\nto"] {
        let text = broken(key, key.strip_prefix("source = [\"10.0.0.0/24\"]\n").unwrap_or_default());
        let found = said(&(text.replacen("nodes = 2", "nodes = 2\nlgo = 1", 1)));
        assert!(found.contains("missing field `") && found.contains("did you mean `log`"), "{found}");
        // What stands in for it is not spoken of.
        assert!(!found.contains("\"\""), "{found}");
    }
}

proptest! {
    /// However a file is damaged, it is read to the end, and each finding has its place in it.
    #[test]
    fn a_damaged_file_is_refused_with_places(lines in prop::collection::vec((0_usize..40, 0_usize..4), 1..12)) {
        let mut written: Vec<String> = GOOD.lines().map(str::to_owned).collect();
        for (number, kind) in lines {
            let Some(line) = written.get_mut(number) else { continue };
            match kind {
                0 => line.insert(0, 'x'),
                1 => *line = line.replace('"', ""),
                2 => line.clear(),
                _ => *line = line.replace("= ", "= [").replace('=', "= 1 #"),
            }
        }
        let text = written.join("\n");
        if let Err(ConfigError::Invalid(found)) = check(&text) {
            prop_assert!(!found.is_empty());
            prop_assert!(found.iter().all(|found| (1..=written.len() + 1).contains(&found.line)));
        }
    }
}
