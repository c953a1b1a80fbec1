//! `sconce serve`: the runs on record as a page that keeps itself up to date, and as metrics.

mod metrics_push;

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use sconce_schema::exit;
use sconce_web::server::{AccessPolicy, RecordCache, ServedGpus, ServerState, WebServer};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::CliError;
use crate::output;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::input;

/// In which time answers under way may end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Port; 0 takes a free one.
    #[arg(long, default_value_t = 0, value_parser = crate::number::whole_number_parser::<u16>(0, 65_535))]
    port: u16,
    /// Address; another than this machine's own is for everyone who can reach it and has the token.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// A name under which this server is reached, beside its address and `localhost`.
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Read the token from the first line of FILE, 16 characters or more; a random one where nothing is
    /// given.
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// Serve /metrics without the token, on this machine's own address alone.
    #[arg(long)]
    metrics_open: bool,
    /// Tell cards by the names of NVIDIA's dcgm-exporter too.
    #[arg(long)]
    dcgm_names: bool,
    #[command(flatten)]
    push: metrics_push::MetricsPushArgs,
}

pub(crate) fn serve(args: &ServeArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    if args.metrics_open && !args.listen.is_loopback() {
        return Err(CliError::OpenMetrics {
            listen: args.listen,
        }
        .into());
    }
    let token = match &args.token_file {
        Some(path) => {
            if is_open(path) {
                let style = crate::style::OutputStyle::for_stderr();
                let shown = output::format_path(path);
                let told = format!("others can read the token in {shown}");
                let hint = format!("{} chmod 600 {shown}", style.hint("hint:"));
                output::print_message(&format!("{}\n{hint}", style.warn(&told)));
            }
            token_of(path)?
        }
        None => random_token()?,
    };
    let collector = args
        .push
        .build_collector(&sconce_app::network::fetch_config(false, &[], &context.env))?;
    let wanted = SocketAddr::new(args.listen, args.port);
    let failed = |source| CliError::Listen {
        address: wanted,
        source,
    };
    // Before anything is printed, so that whoever reads it can end the program.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let listener = TcpListener::bind(wanted).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let hostname = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let site = ServerState {
        records: RecordCache::new(places.runs),
        gpus: ServedGpus::load_nvml(hostname),
        dcgm_names: args.dcgm_names,
    };
    let door = AccessPolicy::new(&token, address, &args.name, args.metrics_open);
    let server = Arc::new(WebServer::new(site, door));
    let listening = server.clone();
    thread::spawn(move || listening.accept_connections(&listener));
    let ahead = server.clone();
    thread::spawn(move || ahead.read_ahead());
    if let Some(collector) = collector {
        let (feeding, quiet) = (server.clone(), context.quiet);
        let tell = move |event| metrics_push::print_event(&event, quiet);
        thread::spawn(move || collector.send_until_shutdown(&feeding, &tell));
    }
    // Behind `#` a browser keeps it to itself.
    let shown = match args.token_file {
        Some(_) => String::new(),
        None => format!("#token={token}"),
    };
    output::write_data(&format!("http://{address}/{shown}"))?;
    if !context.quiet {
        output::print_message("Ctrl-C ends it.");
    }
    let _ = signals.forever().next();
    server.shut_down(SHUTDOWN_TIMEOUT);
    Ok(exit::OK)
}

fn random_token() -> Result<String> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 24];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| AppError::File {
        action: FileAction::Read,
        path: path.to_owned(),
        source,
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Whether others than its owner can read a file; a pipe of a shell's is none.
fn is_open(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o044 != 0)
}

fn token_of(path: &Path) -> Result<String> {
    let text = input::read_stream_text(path, &output::tell_fifo_wait)
        .map_err(AppError::unreadable(path))?;
    let token = text.lines().next().unwrap_or_default().trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if token.len() < 16 || !token.chars().all(fits) {
        return Err(CliError::WeakToken {
            path: path.to_owned(),
        }
        .into());
    }
    Ok(token.to_owned())
}
