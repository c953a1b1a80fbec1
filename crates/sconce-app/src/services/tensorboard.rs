//! `[services.tensorboard]`.

use sconce_schema::request::RunRequest;
use sconce_schema::service::RunService;
use sconce_schema::spec::TensorBoard;

use super::{Listens, ServiceError};

/// TensorBoard has no login: whoever reaches its port sees what is in the folder.
pub(super) fn build_service(
    board: &TensorBoard,
    request: &RunRequest,
) -> Result<RunService, ServiceError> {
    let listens = Listens::on("tensorboard", board.port_or_default(), request.network)?;
    let logdir = request.workdir.join(board.logdir_or_default());
    let command = [
        "tensorboard",
        "--logdir",
        &logdir.to_string_lossy(),
        "--host",
        &listens.address.to_string(),
        "--port",
        &listens.port.to_string(),
    ];
    let mut service = RunService::new("tensorboard", command.map(str::to_owned).to_vec());
    service.ports = vec![listens.outside];
    service.links = vec![format!("http://{}/", listens.reached())];
    service.health = listens.http("/");
    Ok(service)
}
