//! What the server sends, byte for byte, in `tests/golden`. What else it sends is made by `sconce-report`, and held
//! there.

use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

const TYPES: &[(&str, HeldBy)] = &[("server/routes::RunProgress", Golden("serve-state.json"))];

pub(crate) fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_sent_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}
