//! Work without network: what is missing is told by name.

use sconce_image::MissingPackages;

use crate::failure::AppError;

/// Whether nothing is to be fetched.
///
/// # Errors
/// [`AppError::Offline`] names what is.
pub(crate) fn check_is_there(missing: &MissingPackages<'_>) -> Result<(), AppError> {
    let missing = list_unfetched(missing);
    match missing.is_empty() {
        true => Ok(()),
        false => Err(AppError::Offline { missing }),
    }
}

/// What is to be fetched, by name. Wheels that are built from sources are not.
pub(crate) fn list_unfetched(missing: &MissingPackages<'_>) -> Vec<String> {
    let wheels = missing.wheels.iter().filter(|wheel| wheel.build.is_none());
    let wheels = wheels.map(|wheel| wheel.file.clone());
    let debs = missing.debs.iter();
    let debs = debs.map(|deb| format!("{} {}", deb.name, deb.version));
    let python = missing.python_archive().map(|python| python.file.clone());
    wheels.chain(debs).chain(python).collect()
}
