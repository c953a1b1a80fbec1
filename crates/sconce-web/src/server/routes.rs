//! What is answered to which path.

use std::time::{SystemTime, UNIX_EPOCH};

use sconce_base::text::with_causes;
use sconce_record::{RecordError, RunEntry, RunListing, RunState};
use sconce_report::compare::Comparison;
use sconce_report::views::{self, RecordView};
use sconce_report::{json, metrics};
use serde::Serialize;

use super::http::{self, HttpRequest, HttpResponse, HttpStatus};
use super::record_cache::RecordCache;
use super::served_gpus::ServedGpus;
use crate::view;

/// Points of a figure that one answer has at most.
const MAX_POINTS: u64 = 4096;
const DEFAULT_POINTS: u64 = 600;

/// What the server shows.
pub struct ServerState {
    /// The runs on record.
    pub records: RecordCache,
    /// The machine's GPUs.
    pub gpus: ServedGpus,
    /// Whether GPUs are told by the names of NVIDIA's dcgm-exporter too.
    pub dcgm_names: bool,
}

/// An answer.
pub(super) enum RouteResponse {
    Whole(HttpResponse),
    /// A stream of events.
    Live,
}

/// Where a run stands, for a page that may have to ask again.
#[derive(Serialize)]
struct RunProgress<'a> {
    id: &'a str,
    running: bool,
    t_us: Option<u64>,
}

impl ServerState {
    pub(super) fn route_request(&self, request: &HttpRequest) -> RouteResponse {
        let parts: Vec<&str> = request.path.split('/').skip(1).collect();
        RouteResponse::Whole(match parts.as_slice() {
            [""] => HttpResponse::ok(http::HTML, view::render_served_page()),
            ["page.css"] => HttpResponse::ok(http::CSS, view::page_css()),
            ["page.js"] => HttpResponse::ok(http::JS, view::SCRIPT),
            ["metrics"] => or_failed(
                self.metrics()
                    .map(|text| HttpResponse::ok(http::METRICS, text)),
            ),
            ["api", "live"] => return RouteResponse::Live,
            ["api", "runs"] => or_failed(
                self.records
                    .list_runs()
                    .map(|listing| HttpResponse::ok(http::JSON, json::render_run_list(&listing))),
            ),
            ["api", "runs", id] => self.run(id, views::render_run),
            ["api", "runs", id, "report"] => self.run(id, |view| json::render_report(&view.report)),
            ["api", "compare", before, after] => self.compare(before, after),
            ["api", "runs", id, "series"] => self.series(id, request),
            _ => HttpResponse::plain_text_error(HttpStatus::NotFound, "There is nothing here."),
        })
    }

    /// Where every run stands, as JSON.
    pub(super) fn run_states_json(&self) -> String {
        // A folder that cannot be read has no runs; `/api/runs` says why.
        let listing = self.records.list_runs().ok();
        let runs = listing.iter().flat_map(|listing| &listing.runs);
        let standing = runs.map(|run| RunProgress {
            id: &run.started.id,
            running: run.state == RunState::Running,
            t_us: run.last.as_ref().map(|line| line.t_us),
        });
        let standing: Vec<RunProgress<'_>> = standing.collect();
        serde_json::to_string(&standing).unwrap_or_else(|_| "[]".to_owned())
    }

    fn run(&self, id: &str, shown: impl Fn(&RecordView) -> String) -> HttpResponse {
        or_failed(self.records.load_view(id).map(|view| match view {
            Some(view) => HttpResponse::ok(http::JSON, shown(&view)),
            None => no_run(),
        }))
    }

    fn compare(&self, before: &str, after: &str) -> HttpResponse {
        let (before, after) = (
            self.records.load_view(before),
            self.records.load_view(after),
        );
        or_failed(before.and_then(|before| {
            Ok(match (before, after?) {
                (Some(before), Some(after)) => {
                    let compared = Comparison::from_reports(&before.report, &after.report);
                    HttpResponse::ok(http::JSON, json::render_comparison(&compared))
                }
                _ => no_run(),
            })
        }))
    }

    fn series(&self, id: &str, request: &HttpRequest) -> HttpResponse {
        or_failed(self.records.load_view(id).and_then(|view| {
            let Some(view) = view else {
                return Ok(no_run());
            };
            let points = request
                .numeric_parameter("points")
                .unwrap_or(DEFAULT_POINTS)
                .clamp(2, MAX_POINTS);
            let from_us = request.numeric_parameter("from").unwrap_or(0);
            let to_us = request
                .numeric_parameter("to")
                .unwrap_or(view.series.wall_us)
                .max(from_us.saturating_add(1));
            let fine = to_us.saturating_sub(from_us) / points >= view.series.width_us();
            let whole = from_us == 0 && to_us >= view.series.wall_us;
            let points = points as usize;
            let text = if fine || whole {
                views::render_series(&view.series, from_us, to_us, points)
            } else {
                match self.records.load_time_range(id, from_us, to_us, points)? {
                    Some(series) => views::render_series(&series, from_us, to_us, points),
                    None => return Ok(no_run()),
                }
            };
            Ok(HttpResponse::ok(http::JSON, text))
        }))
    }

    /// Metrics of the runs that go on and of the machine's cards.
    fn metrics(&self) -> Result<String, RecordError> {
        let (listing, cards) = (self.records.list_runs()?, self.gpus.read_samples());
        Ok(metrics::render_prometheus(
            running(&listing),
            &cards,
            self.dcgm_names,
        ))
    }

    /// The same as a request to an OpenTelemetry collector.
    pub(crate) fn otlp_metrics(&self) -> Result<String, RecordError> {
        let (listing, cards) = (self.records.list_runs()?, self.gpus.read_samples());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let source = metrics::OtlpResource {
            hostname: self.gpus.hostname(),
            unix_ms: now.unwrap_or_default().as_millis() as u64,
        };
        Ok(metrics::render_otlp(running(&listing), &cards, source))
    }
}

fn running(listing: &RunListing) -> impl Iterator<Item = &RunEntry> {
    let runs = listing.runs.iter();
    runs.filter(|run| run.state == RunState::Running)
}

fn no_run() -> HttpResponse {
    HttpResponse::plain_text_error(HttpStatus::NotFound, "There is no such run.")
}

/// What cannot be read is said in words; a page shows them.
fn or_failed(response: Result<HttpResponse, RecordError>) -> HttpResponse {
    response.unwrap_or_else(|error| {
        HttpResponse::plain_text_error(HttpStatus::Failed, &with_causes(&error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_run_is_as_before() {
        let standing = RunProgress {
            id: "a",
            running: true,
            t_us: Some(1),
        };
        let line = serde_json::to_string(&standing).unwrap() + "\n";
        crate::golden::goldens().assert_same("serve-state.json", line);
    }
}
