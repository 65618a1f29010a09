//! Whole pages.

use super::plot::{WIDE, draw_sized};
use super::*;

fn example() -> Report {
    let mut table = Dataset::new(
        "methods",
        &[
            ("method", "method", ColumnKind::Text),
            ("bytes", "bytes", ColumnKind::Integer),
            ("reduction", "saved", ColumnKind::Share(1)),
        ],
    );
    table.push(vec!["precise <eager>".into(), 1_234_567_u64.into(), Value::Missing]);
    table.push(vec!["flow digest".into(), 540_u64.into(), 0.46.into()]);
    let lines = vec![
        Series::new("measured", [(0.0, 1.0), (1.0, 100.0), (2.0, f64::NAN)]),
        Series::reference("formula", [(0.0, 1.0), (2.0, 80.0)]),
    ];
    let plots = [PlotKind::Line, PlotKind::Cdf, PlotKind::Scatter].map(|kind| {
        let plot = Plot::new(kind, format!("{kind:?}"), Axis::new("time", "s"), Axis::new("saved", "%"), lines.clone());
        Block::Plot(plot.with_note("what it means"))
    });
    let bars = Plot::new(
        PlotKind::Bar,
        "Bar",
        Axis::of_categories("method", "", ["a & b", "c"]),
        Axis::new("rate", "").logarithmic(),
        vec![Series::new("false hits", [(0.0, 0.001), (1.0, 0.1)])],
    );
    let rows = Plot { kind: PlotKind::Rows, ..bars.clone() };
    let folded = Block::Folded("all of it".into(), table.clone());
    let blocks = [Block::Table(table)].into_iter().chain(plots);
    let blocks = blocks.chain([Block::Plot(bars), Block::Plot(rows), folded]).collect();
    Report {
        subject: "Mainstay study".into(),
        title: "What <this> costs".into(),
        tiles: vec![Tile { name: "Saved".into(), value: "46 %".into(), beside: "by a flow digest".into() }],
        sections: vec![Section { heading: "Bandwidth".into(), blocks }],
        ..Report::default()
    }
}

#[test]
fn a_page_needs_nothing_else_and_shows_every_figure() {
    let html = example().html();
    for absent in ["<script", "http://", "https://", "src=", "@import", "url(", "NaN", "<eager>", "<this>"] {
        assert!(!html.contains(absent), "{absent} is in the page");
    }
    for present in [
        "precise &lt;eager&gt;",
        "1\u{202f}234\u{202f}567",
        "46.0 %",
        "a &amp; b",
        "prefers-color-scheme: dark",
        "<summary>all of it",
    ] {
        assert!(html.contains(present), "{present} is not in the page");
    }
    assert_eq!(html.matches("class=\"wide\"").count(), 5, "every plot is drawn for wide screens");
    assert_eq!(html.matches("class=\"narrow\"").count(), 5, "and for narrow ones");
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
}

#[test]
fn json_has_the_numbers_behind_the_plots_and_no_number_where_there_is_none() {
    let json = example().json();
    let blocks = &json["sections"][0]["blocks"];
    assert_eq!(blocks[0]["table"]["rows"][1][2], 0.46);
    assert!(blocks[0]["table"]["rows"][0][2].is_null());
    assert_eq!(blocks[1]["plot"]["series"][0]["points"][1]["y"], 100.0);
    assert!(blocks[1]["plot"]["series"][0]["points"][2]["y"].is_null(), "what is no number is null");
    assert_eq!(blocks[4]["plot"]["y"]["scale"], "logarithmic");
}

#[test]
fn a_cumulative_series_ends_at_all_and_joins_equal_values() {
    let series = Series::cumulative("lifetimes", vec![3.0, 1.0, 1.0, 2.0]);
    let points: Vec<(f64, f64)> = series.points.iter().map(|point| (point.x, point.y)).collect();
    assert_eq!(points, [(1.0, 50.0), (2.0, 75.0), (3.0, 100.0)]);
}

#[test]
fn long_series_are_thinned_but_keep_their_end() {
    let series = Series::new("long", (0..100_000).map(|x| (f64::from(x), f64::from(x))));
    let plot = Plot::new(PlotKind::Line, "long", Axis::new("", ""), Axis::new("", ""), vec![series]);
    let svg = draw_sized(&plot, WIDE);
    assert!(svg.matches('L').count() <= plot::POINTS_DRAWN_MAX + 1, "thinned");
    assert!(svg.contains("L906.0 24.0"), "the last point is the axes' end: {}", &svg[svg.len() - 200..]);
}

#[test]
#[should_panic(expected = "cannot stand in column bytes")]
fn a_value_of_another_kind_is_refused() {
    Dataset::new("methods", &[("bytes", "bytes", ColumnKind::Integer)]).push(vec!["many".into()]);
}
