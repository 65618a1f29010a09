//! The tutorial's code is that of the example, which runs.

#[path = "../../examples/byte_quota.rs"]
mod byte_quota;

const PAGE: &str = include_str!("../../../../docs/writing-a-function.md");
const EXAMPLE: &str = include_str!("../../examples/byte_quota.rs");

/// The blocks of a language on the page, one after the other.
fn blocks(language: &str) -> Vec<&'static str> {
    let mut rest = PAGE;
    let mut blocks = Vec::new();
    while let Some((_, behind)) = rest.split_once(&format!("```{language}\n")) {
        let (block, behind) = behind.split_once("```").expect("every block has an end");
        blocks.push(block);
        rest = behind;
    }
    blocks
}

#[test]
fn the_blocks_of_the_page_are_the_example() {
    let code = EXAMPLE.split_once("\n\n").expect("its description comes first").1;
    let lines = |text: &str| text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let page: Vec<String> = blocks("rust").into_iter().flat_map(lines).collect();
    assert!(page.len() > 30, "{page:?}");
    assert_eq!(page, lines(code));
    assert!(code.lines().count() < 100, "a function is short");
}

#[test]
fn the_function_of_the_page_survives_a_killed_node() {
    byte_quota::main().expect("the quota is kept");
}

#[test]
fn the_page_names_the_crates_that_the_example_uses() {
    let manifest = blocks("toml").concat();
    for name in ["network-functions", "simulator"] {
        assert!(manifest.contains(&format!("{name} = ")), "{manifest}");
    }
}
