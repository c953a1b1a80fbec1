//! Spec to lock: Python packages through uv, Debian packages from the signed apt indexes.
