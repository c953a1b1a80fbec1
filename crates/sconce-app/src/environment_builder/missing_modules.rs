//! Modules that a spec calls missing, and that what was resolved brings after all.

use sconce_formats::{find_providers, normalize_project_name};
use sconce_schema::Lock;
use sconce_store::Store;

use super::EnvironmentBuilder;
use crate::failure::{AppError, Result};

impl EnvironmentBuilder<'_> {
    /// Ends where a module stays missing: that is said now, and not by the run.
    pub(super) fn check_modules(&self, lock: &Lock) -> Result<()> {
        let missing = &self.project.spec.python.missing;
        let projects = self.project.editable.iter();
        let projects: Vec<String> = projects
            .filter_map(|one| normalize_project_name(&one.metadata.name))
            .collect();
        let (mut modules, mut brought) = (Vec::new(), Vec::new());
        for module in missing {
            let own = projects.iter().find(|name| is_called(name, module));
            match own
                .cloned()
                .or_else(|| find_project(lock, self.store, module))
            {
                Some(project) => brought.push((module, project)),
                None => modules.push(module.clone()),
            }
        }
        if !modules.is_empty() {
            let path = self.project.file.clone();
            return Err(AppError::MissingModules { modules, path }.into());
        }
        for (module, project) in brought {
            self.progress.note(&format!(
                "{module} comes with {project}, which is required: it can go from `missing` in `[python]`"
            ));
        }
        Ok(())
    }

    /// Names the modules that are called missing where nothing could be resolved. Why it could not is the error: what
    /// would have been resolved may bring some of them.
    pub(super) fn note_missing_modules(&self) {
        let missing = &self.project.spec.python.missing;
        if !missing.is_empty() {
            self.progress.note(&format!(
                "nothing brings {} yet, which the code imports and `missing` in `[python]` names",
                missing.join(", ")
            ));
        }
    }
}

/// The project of a lock that a module comes with: by the table of modules, by its name, or by its files where those
/// are in the store.
fn find_project(lock: &Lock, store: &Store, module: &str) -> Option<String> {
    let is_known = |name: &str| {
        find_providers(module).is_some_and(|mut providers| {
            providers.any(|provider| provider.split('<').next() == Some(name))
        })
    };
    let top = module.split('.').next().unwrap_or(module);
    let python = &lock.target.python;
    let has_files = |wheel: &&sconce_schema::lock::Wheel| {
        let site = format!("opt/venv/lib/python{python}/site-packages");
        let site = store.wheel_tree(wheel, python).map(|tree| tree.join(site));
        let is_name = top.chars().all(|c| c.is_alphanumeric() || c == '_');
        is_name
            && site.is_some_and(|site| {
                site.join(top).is_dir() || site.join(format!("{top}.py")).is_file()
            })
    };
    let mut wheels = lock.wheels.iter();
    let by_name = wheels.find(|wheel| is_known(&wheel.name) || is_called(&wheel.name, top));
    let wheel = by_name.or_else(|| lock.wheels.iter().find(has_files))?;
    Some(wheel.name.clone())
}

/// Whether a project is called as its module, but for Python's own name: `rtree` of `python-rtree`.
fn is_called(project: &str, module: &str) -> bool {
    let Some(module) = normalize_project_name(module) else {
        return false;
    };
    let bare = project
        .strip_prefix("python-")
        .or_else(|| project.strip_suffix("-python"));
    project == module || bare == Some(&module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_called_as_its_module() {
        for (project, module) in [
            ("numcodecs", "numcodecs"),
            ("adam-atan2-pytorch", "adam_atan2_pytorch"),
            ("python-rtree", "rtree"),
        ] {
            assert!(is_called(project, module), "{project}");
        }
        for (project, module) in [("psi4-tools", "psi4"), ("x", "_"), ("python-", "")] {
            assert!(!is_called(project, module), "{project}");
        }
    }
}
