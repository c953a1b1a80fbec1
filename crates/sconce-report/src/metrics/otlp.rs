//! The same metrics as an OTLP request in JSON (opentelemetry.io/docs/specs/otlp, JSON Protobuf encoding:
//! lower camel case, 64-bit integers as text, enumerations as numbers). Cards are told by the names of
//! OpenTelemetry's conventions for hardware too, where those have one
//! (opentelemetry.io/docs/specs/semconv/hardware/gpu, status: development).

use sconce_record::RunEntry;
use serde::Serialize;

use super::{MachineGpuSample, Page, Point, Value, bytes, names};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;

/// Who tells, and when.
#[derive(Debug, Clone, Copy)]
pub struct OtlpResource<'a> {
    /// Name of the machine.
    pub hostname: &'a str,
    /// Now, in ms since 1970.
    pub unix_ms: u64,
}

/// An `ExportMetricsServiceRequest` of runs that go on and of cards.
pub fn render_otlp<'a>(
    running: impl Iterator<Item = &'a RunEntry>,
    cards: &[MachineGpuSample],
    source: OtlpResource<'_>,
) -> String {
    let page = Page::of(running, cards);
    let own = page.points.into_iter().map(|(place, points)| {
        let (name, kind, help) = names::ALL[place];
        let form = match kind {
            "counter" => Form::Counter,
            _ => Form::Gauge,
        };
        metric(name, unit(name), help, form, &points, source)
    });
    let mut metrics: Vec<Metric<'_>> = own.collect();
    for (name, unit, form, help, value) in HARDWARE {
        let points: Vec<Point> = (cards.iter())
            .filter_map(|card| hardware(name, card, value(card)?))
            .collect();
        if !points.is_empty() {
            metrics.push(metric(name, unit, help, *form, &points, source));
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let request = Request {
        resource_metrics: [ResourceMetrics {
            resource: Resource {
                attributes: vec![
                    attribute("service.name", "sconce"),
                    attribute("service.version", version),
                    attribute("host.name", source.hostname),
                ],
            },
            scope_metrics: [ScopeMetrics {
                scope: Scope {
                    name: "sconce",
                    version,
                },
                metrics,
            }],
        }],
    };
    serde_json::to_string(&request).expect("plain data with text keys is JSON")
}

/// Which instrument a metric is.
#[derive(Debug, Clone, Copy)]
enum Form {
    Gauge,
    Counter,
    /// A sum that goes down too.
    UpDown,
}

type Read = fn(&MachineGpuSample) -> Option<Value>;

/// The conventions' metrics that NVML has a figure for: name, unit, instrument, words, figure.
/// `hw.gpu.io` counts bytes, of which NVML tells only the rate.
const HARDWARE: &[(&str, &str, Form, &str, Read)] = &[
    (
        "hw.gpu.utilization",
        "1",
        Form::Gauge,
        "Fraction of time in which a kernel ran.",
        |card| share(card.sample.utilisation_percent?.into(), 100),
    ),
    (
        "hw.gpu.memory.usage",
        "By",
        Form::UpDown,
        "Memory in use.",
        |card| bytes(card.sample.memory_used),
    ),
    (
        "hw.gpu.memory.limit",
        "By",
        Form::UpDown,
        "All memory.",
        |card| bytes(card.memory),
    ),
    (
        "hw.gpu.memory.utilization",
        "1",
        Form::Gauge,
        "Fraction of memory in use.",
        |card| share(card.sample.memory_used?.0, card.memory?.0),
    ),
    ("hw.power", "W", Form::Gauge, "Draw.", |card| {
        Some(Value::Real(f64::from(card.sample.power_mw?) / 1e3))
    }),
    (
        "hw.energy",
        "J",
        Form::Counter,
        "Energy since the driver was loaded.",
        |card| Some(Value::Real(card.sample.energy_mj? as f64 / 1e3)),
    ),
    (
        "hw.temperature",
        "Cel",
        Form::Gauge,
        "Temperature.",
        |card| Some(Value::Whole(card.sample.temperature_c?.into())),
    ),
];

fn share(part: u64, whole: u64) -> Option<Value> {
    (whole > 0).then(|| Value::Real(part as f64 / whole as f64))
}

fn hardware(name: &str, card: &MachineGpuSample, value: Value) -> Option<Point> {
    if card.uuid.is_empty() {
        return None;
    }
    let mut labels = vec![
        ("hw.id", card.uuid.clone()),
        ("hw.type", "gpu".to_owned()),
        ("hw.name", format!("nvidia{}", card.sample.index)),
        ("hw.vendor", "NVIDIA".to_owned()),
    ];
    labels.extend(card.name.clone().map(|name| ("hw.model", name)));
    labels.extend(card.driver.clone().map(|text| ("hw.driver_version", text)));
    if name == "hw.gpu.utilization" {
        labels.push(("hw.gpu.task", "general".to_owned()));
    }
    Some(Point {
        labels,
        value,
        since_ms: None,
    })
}

/// The unit (UCUM) that the end of a name of ours tells; counts have none.
pub(super) fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    [
        ("_bytes_per_second", "By/s"),
        ("_bytes", "By"),
        ("_seconds", "s"),
        ("_ratio", "1"),
        ("_watts", "W"),
        ("_joules", "J"),
        ("_celsius", "Cel"),
        ("_hertz", "Hz"),
    ]
    .into_iter()
    .find_map(|(end, unit)| name.ends_with(end).then_some(unit))
    .unwrap_or_default()
}

fn metric<'a>(
    name: &'a str,
    unit: &'a str,
    description: &'a str,
    form: Form,
    points: &[Point],
    source: OtlpResource<'_>,
) -> Metric<'a> {
    let point = |point: &Point| DataPoint {
        attributes: (point.labels.iter())
            .map(|(key, text)| attribute(key, text))
            .collect(),
        // The start of a sum alone says something.
        start_time_unix_nano: point
            .since_ms
            .filter(|_| !matches!(form, Form::Gauge))
            .map(nanos),
        time_unix_nano: nanos(source.unix_ms),
        as_double: match point.value {
            Value::Whole(value) => value as f64,
            Value::Real(value) => value,
        },
    };
    let data_points = points.iter().map(point).collect();
    Metric {
        name,
        unit,
        description,
        data: match form {
            Form::Gauge => Data::Gauge { data_points },
            Form::Counter | Form::UpDown => Data::Sum {
                aggregation_temporality: CUMULATIVE,
                is_monotonic: matches!(form, Form::Counter),
                data_points,
            },
        },
    }
}

fn nanos(ms: u64) -> String {
    (u128::from(ms) * 1_000_000).to_string()
}

fn attribute<'a>(key: &'a str, text: &str) -> Attribute<'a> {
    Attribute {
        key,
        value: Text {
            string_value: text.to_owned(),
        },
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_metrics: [ResourceMetrics<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceMetrics<'a> {
    resource: Resource<'a>,
    scope_metrics: [ScopeMetrics<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<Attribute<'a>>,
}

#[derive(Serialize)]
struct ScopeMetrics<'a> {
    scope: Scope<'a>,
    metrics: Vec<Metric<'a>>,
}

#[derive(Serialize)]
struct Scope<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct Metric<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'a str,
    #[serde(flatten)]
    data: Data,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Data {
    Gauge {
        data_points: Vec<DataPoint>,
    },
    Sum {
        aggregation_temporality: u8,
        is_monotonic: bool,
        data_points: Vec<DataPoint>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DataPoint {
    attributes: Vec<Attribute<'static>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time_unix_nano: Option<String>,
    time_unix_nano: String,
    /// Of whole numbers too, exact to 2^53: collectors are about that drop an `asInt` that is text, as
    /// the encoding has it.
    as_double: f64,
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'a str,
    value: Text,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    string_value: String,
}
