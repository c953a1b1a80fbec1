//! Files of one folder that pin the same projects in different versions: which one was taken is said, with the names.

use sconce_import::{
    ImportFormat, ProjectFolder as _, describe_differences, find_version_differences,
};

use super::import_candidates::ImportCandidate;
use super::project_tree::ProjectTree;

/// Adds a note for each other file that disagrees with the one that was taken.
pub(super) fn note_differences(tree: &ProjectTree, found: &mut ImportCandidate) {
    let read = |path: &str| tree.read_text(path);
    let format = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let format = ImportFormat::from_file_name(name)?;
        let pins = matches!(
            format,
            ImportFormat::Requirements | ImportFormat::Conda | ImportFormat::Pipfile
        ) || sconce_import::is_lock_format(format);
        pins.then_some(format)
    };
    let Some((own, text)) = format(&found.path).zip(read(&found.path)) else {
        return;
    };
    for other in &found.others {
        let Some((others, other_text)) = format(other).zip(read(other)) else {
            continue;
        };
        let taken = (own, found.path.as_str(), text.as_str());
        let differences = find_version_differences(taken, (others, other, &other_text), &read);
        let note = describe_differences(&found.path, other, &differences);
        found.adopted.notes.extend(note);
    }
}
