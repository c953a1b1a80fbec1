"""A test that cannot run here says so by name, and is counted: as `sconce_testkit::report_skip` for Rust."""

import os
import pathlib

LIST = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "skips.tsv"


def skip(test, name, why):
    """Leaves `test` out. Where CI is set, what scripts/skips.tsv or SCONCE_SKIP do not name is a failure."""
    if file := os.environ.get("SCONCE_SKIPPED_FILE"):
        with open(file, "a") as out:
            out.write(f"{name}\t{test.id()}\t{why}\n")
    if "CI" in os.environ and not allowed(name, LIST.read_text(), os.environ.get("SCONCE_SKIP", "")):
        test.fail(f"skipped in CI: {name}: {why}")
    test.skipTest(why)


def allowed(name, text, named):
    rows = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    return name in named.split(",") or any(row[0] == name and "ci" in row[1].split(",") for row in rows)
