//! Plots of the kept results, as SVG.

use std::path::Path;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::report::{EngineReport, Report};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 900;
const CURVE_HEIGHT: u32 = 420;

/// The data of a chart of bars, and of each bar.
const BARS_HEIGHT: u32 = 90;
const BAR_HEIGHT: u32 = 24;

/// Room for the longest name of a bar.
const NAMES_WIDTH: u32 = 290;

const TITLE: (&str, i32) = ("sans-serif", 20);
const TEXT: (&str, i32) = ("sans-serif", 13);

/// Colours that most people can tell apart.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(86, 180, 233), RGBColor(230, 159, 0)];

/// Shares of the operations that the axis of a latency curve names: one place for each nine.
const PERCENT_LABELS: [&str; 6] = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"];

/// Draws what the results have, and gives the name and the title of each file.
pub fn draw(report: &Report, folder: &Path) -> Result<Vec<(&'static str, &'static str)>> {
    let mut drawn = Vec::new();
    let mut keep = |file, title, height, plot: &dyn Fn(&Area<'_>) -> Result<()>| {
        let path = folder.join(file);
        let area = SVGBackend::new(&path, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        plot(&area.titled(title, TITLE)?)?;
        area.present()?;
        drawn.push((file, title));
        anyhow::Ok(())
    };

    let loads = throughput(report);
    if !loads.is_empty() {
        let title = "Operations a second, 64 connections";
        let most = loads.iter().map(|bar| bar.value).fold(1.0, f64::max);
        keep("throughput.svg", title, height(&loads), &|area| {
            bars(area, &loads, 0.0, 0.0..most * 1.15)
        })?;
    }
    if report.engines.values().any(|report| !report.latency.is_empty()) {
        let title = "Latency of transfer-out at half of peak load, open loop";
        keep("latency.svg", title, CURVE_HEIGHT, &|area| latency(report, area))?;
    }
    let pages = pages(report);
    if !pages.is_empty() {
        let title = "Milliseconds for a page of 20 transactions, by payments in the database";
        let least = pages.iter().map(|bar| bar.value).fold(f64::MAX, f64::min) / 2.0;
        let most = pages.iter().map(|bar| bar.value).fold(least, f64::max);
        keep("pages.svg", title, height(&pages), &|area| {
            bars(area, &pages, least, (least..most * 3.0).log_scale())
        })?;
    }
    Ok(drawn)
}

/// A bar with its name.
struct Bar {
    name: String,
    value: f64,
    colour: RGBColor,
}

fn height(bars: &[Bar]) -> u32 {
    BARS_HEIGHT + BAR_HEIGHT * u32::try_from(bars.len()).unwrap_or(u32::MAX / BAR_HEIGHT / 2)
}

/// A bar for each load of each engine.
fn throughput(report: &Report) -> Vec<Bar> {
    let engines = report.engines.iter().zip(COLOURS);
    let bars = engines.flat_map(|((engine, report), colour)| {
        report.throughput.iter().map(move |load| Bar {
            name: format!("{engine}: {}", load.load),
            value: load.settled_per_second.unwrap_or(load.per_second),
            colour,
        })
    });
    bars.collect()
}

/// A bar for each page of each list, by engine and size of the database.
fn pages(report: &Report) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (number, (engine, EngineReport { pages, .. })) in report.engines.iter().enumerate() {
        let smallest = pages.iter().map(|page| page.transactions).min();
        for page in pages {
            let is_small = Some(page.transactions) == smallest;
            bars.push(Bar {
                name: format!("{engine}: {}, {}", page.page, page.transactions),
                value: page.millis,
                colour: COLOURS[(number + if is_small { 2 } else { 0 }) % COLOURS.len()],
            });
        }
    }
    bars
}

/// Horizontal bars, the first at the top, from `origin`.
fn bars<X>(area: &Area<'_>, bars: &[Bar], origin: f64, axis: X) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let count = i32::try_from(bars.len())?;
    let mut chart = ChartBuilder::on(area)
        .margin(15)
        .x_label_area_size(30)
        .y_label_area_size(NAMES_WIDTH)
        .build_cartesian_2d(axis, (0..count - 1).into_segmented())?;
    let name = |at: &SegmentValue<i32>| match at {
        SegmentValue::CenterOf(at) => {
            let bar = usize::try_from(count - 1 - at).ok().and_then(|at| bars.get(at));
            bar.map(|bar| bar.name.clone()).unwrap_or_default()
        }
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .y_labels(bars.len())
        .y_label_formatter(&name)
        .label_style(TEXT)
        .draw()?;
    for (at, bar) in (0..count).rev().zip(bars) {
        let (low, high) = (SegmentValue::Exact(at), SegmentValue::Exact(at + 1));
        let mut shape = Rectangle::new([(origin, low), (bar.value, high)], bar.colour.filled());
        shape.set_margin(4, 4, 0, 0);
        chart.draw_series([shape])?;
        let digits = if bar.value < 100.0 { 2 } else { 0 };
        let text = format!(" {:.digits$}", bar.value);
        let place = (bar.value, SegmentValue::CenterOf(at));
        chart.draw_series([EmptyElement::at(place) + Text::new(text, (2, -6), TEXT)])?;
    }
    Ok(())
}

/// A curve for each engine. The axis is stretched towards the slowest operations.
fn latency(report: &Report, area: &Area<'_>) -> Result<()> {
    let place = |percent: f64| -(1.0 - percent / 100.0).log10();
    let points = report.engines.values().flat_map(|report| &report.latency);
    let (mut widest, mut slowest) = (1.0_f64, 1.0_f64);
    for point in points {
        widest = widest.max(place(point.percent));
        slowest = slowest.max(point.millis);
    }
    let mut chart = ChartBuilder::on(area)
        .margin(15)
        .x_label_area_size(45)
        .y_label_area_size(65)
        .build_cartesian_2d(0.0..widest, 0.0..slowest * 1.1)?;
    let label = |at: &f64| {
        let known = PERCENT_LABELS.iter().enumerate();
        let known = known.map(|(nines, text)| (nines as f64, text));
        let mut known = known.filter(|(nines, _)| (nines - at).abs() < 1e-6);
        known.next().map_or_else(String::new, |(_, text)| (*text).to_owned())
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(PERCENT_LABELS.len())
        .x_label_formatter(&label)
        .x_desc("of the payments")
        .y_desc("milliseconds")
        .label_style(TEXT)
        .draw()?;
    for ((engine, report), colour) in report.engines.iter().zip(COLOURS) {
        let points = report.latency.iter().map(|point| (place(point.percent), point.millis));
        let line = LineSeries::new(points, colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(engine.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .label_font(TEXT)
        .draw()?;
    Ok(())
}
