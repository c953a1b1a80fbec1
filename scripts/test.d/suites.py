"""The suites that run outside of CI, an entry each. scripts/test.d/long.py runs them.

A suite is a script that prints the names of its cases, one a line, and runs one of them. A case's exit code is its
outcome: 0, 77 for left out, any other for failed.
"""

import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str
    # Prints the names of the cases.
    list_command: typing.Sequence[str]
    # Runs one: {sconce} is the program, {case} the case's name, whose words become words.
    command: typing.Sequence[str]
    # Patterns of the cases that are small enough for CI, which runs one of them for each commit.
    small_cases: typing.Sequence[str]
    # The files and directories whose change makes a result stale.
    paths: typing.Sequence[str]
    # How CI runs a case, where that differs.
    small_command: typing.Sequence[str] = ()
    # Whether a case takes one core alone, so that there is one for each.
    one_per_core: bool = False


def below(directory, names):
    return [f"{directory}/{name}" for name in names.split()]


def sources_of(crates):
    return [f"crates/sconce-{crate}/src" for crate in crates.split()]


SUITES = (
    # Five torches. CI has all of the newest, and an older nvJitLink with the oldest.
    Suite(
        name="check",
        list_command=("scripts/test.d/check", "--cases"),
        command=("scripts/test.d/check", "{sconce}", "{case}"),
        # Not those that train on a torch: they take minutes.
        small_cases=("2.4/*", "2.6/matrix", "2.8/matrix", "2.11/matrix"),
        paths=(
            *sources_of("compat host memory record report vgpu"),
            *below("crates", "sconce-compat/rules sconce-report/rules"),
            *below("crates/sconce-app/src", "accounting.rs inspect probe.rs ranks.rs virtual_gpu.rs"),
            *below("crates/sconce-cli/src", "args"),
            *below("crates/sconce-cli/src/commands", "check.rs explain.rs fit fit.rs memory memory.rs"),
            *("python/sconce_probe", "scripts/common"),
            *below("scripts/test.d", "check check.d check.py checks.py allocator virtual-gpu whatif"),
            *below("scripts/test.d", "account account.py account-cells.py account-frames.py trouble trouble.py"),
            *below("scripts/test.d", "fit fit.py fit-values.py plans plans.py ranks ranks.py two-ranks.py"),
        ),
    ),
    # Each parser for a minute, optimized and with counters in every library. CI has five seconds of each.
    Suite(
        name="fuzz",
        list_command=("scripts/fuzz", "--cases"),
        command=("scripts/fuzz", "60", "{case}"),
        small_cases=("*",),
        small_command=("scripts/fuzz", "--as-tests", "60", "{case}"),
        one_per_core=True,
        paths=(
            *sources_of("compat host image memory record report resolve schema store"),
            *("fuzz", "scripts/fuzz", "scripts/instrumented-rustc", "Cargo.lock"),
        ),
    ),
    # 32 processes at once for four minutes. CI has 8 for 40 seconds.
    Suite(
        name="stress",
        list_command=("scripts/test.d/stress", "--cases"),
        command=("scripts/test.d/stress", "{sconce}", "{case}"),
        small_cases=("8 *",),
        paths=(
            *sources_of("image run store"),
            *below("crates/sconce-app/src", "build environment_builder.rs item_guards.rs kernel_cache kernel_cache.rs"),
            *below("crates/sconce-app/src", "protected_dirs protected_dirs.rs run"),
            *below("crates/sconce-cli/src/commands", "build build.rs prune.rs push.rs run.rs"),
            *below("scripts/test.d", "stress stress.py"),
        ),
    ),
)
