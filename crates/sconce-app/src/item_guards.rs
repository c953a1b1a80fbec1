//! Trees that stay in the store while somebody stands on them.

use sconce_schema::environment_layers::LayerTree;
use sconce_schema::request::RunRoot;
use sconce_store::{ItemGuard, StoreError};

use crate::failure::Result;

/// How often an environment is brought again of which something has left the store before it was held.
const MAX_ATTEMPTS: u32 = 5;

/// What `bring` gives, and the right of its trees to stay as long as that is held. What another process
/// removed in between, as `prune` does, is brought again.
pub fn with_item_guards<T>(
    mut bring: impl FnMut() -> Result<T>,
    layers: impl Fn(&T) -> &[LayerTree],
) -> Result<(T, Vec<ItemGuard>)> {
    let mut tries = 1;
    loop {
        let held = bring().and_then(|brought| {
            let held = acquire_layer_guards(layers(&brought))?;
            Ok((brought, held))
        });
        match held {
            Err(failure) if failure.is_gone() && tries < MAX_ATTEMPTS => tries += 1,
            held => return held,
        }
    }
}

/// Has trees stay that nobody can bring again here.
///
/// # Errors
/// [`StoreError::Gone`] and the others.
pub fn acquire_layer_guards(layers: &[LayerTree]) -> Result<Vec<ItemGuard>, StoreError> {
    sconce_store::acquire_item_guards(layers.iter().map(|layer| layer.path.as_path()))
}

/// Has what a run stands on stay in the store as long as what this gives is held.
pub fn acquire_root_guards(root: &RunRoot) -> Result<Vec<ItemGuard>> {
    match root {
        RunRoot::Image(manifest) => Ok(acquire_layer_guards(&manifest.layers)?),
        RunRoot::Host => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use sconce_schema::Hint as _;
    use sconce_store::Store;

    use super::*;

    fn layer(store: &Store, key: &str) -> LayerTree {
        let build = |tree: &Path| fs::write(tree.join("a"), key);
        LayerTree {
            name: key.to_owned(),
            path: store.build_tree("wheel", key, build).unwrap(),
        }
    }

    #[test]
    fn what_left_the_store_is_brought_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut brought = 0;
        let (layers, held) = with_item_guards(
            || {
                brought += 1;
                let layers = vec![layer(&store, "six"), layer(&store, "seven")];
                if brought < 3 {
                    // As another process's prune would, just before they are held.
                    assert!(store.remove_item("wheel", "seven")?);
                }
                Ok(layers)
            },
            |layers| layers,
        )
        .unwrap_or_else(|_| panic!("the third try"));
        assert_eq!((brought, held.len()), (3, 2));
        assert!(!store.remove_item("wheel", "six").unwrap());
        assert!(layers.iter().all(|layer| layer.path.join("a").is_file()));
    }

    #[test]
    fn what_leaves_while_it_is_brought_is_brought_again() {
        let mut brought = 0;
        let (layers, held) = with_item_guards(
            || {
                brought += 1;
                if brought < 3 {
                    let what = "a wheel".to_owned();
                    return Err(sconce_image::AssembleError::Gone { what }.into());
                }
                Ok(Vec::new())
            },
            |layers: &Vec<LayerTree>| layers,
        )
        .unwrap_or_else(|_| panic!("the third try"));
        assert_eq!((brought, layers.len(), held.len()), (3, 0, 0));
    }

    #[test]
    fn what_always_leaves_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut brought = 0;
        let gone = with_item_guards(
            || {
                brought += 1;
                let layers = vec![layer(&store, "six")];
                store.remove_item("wheel", "six")?;
                Ok(layers)
            },
            |layers| layers,
        );
        assert_eq!(brought, MAX_ATTEMPTS);
        let error = gone.err().map(|failure| failure.exit_code());
        assert_eq!(error, Some(sconce_schema::exit::STORE));
        let hint = StoreError::Gone { path: "x".into() }.hint();
        assert!(hint.is_some());
    }
}
