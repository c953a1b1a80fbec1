# What suites on a Slurm of their own (scripts/slurm-rig) have in common, to be sourced after scripts/common, as root:
# `begin_rig PATH-OF-SCONCE [OPTIONS of slurm-rig start]` starts it, with a project of the user `rig` whose environment
# is in the store, since nodes have no way out.

# What fails within $(…) fails outside of it, too.
builtin shopt -s inherit_errexit

begin_rig() {
  local program=$1
  shift
  rig=$(mktemp -d)
  work=$rig
  chmod 755 "$rig"
  trap end_rig EXIT
  install -m 755 "$program" "$rig/sconce"
  export NO_COLOR=1
  home=$rig/home project=$rig/home/demo jobs=$rig/home/.local/state/sconce/jobs
  scripts/slurm-rig start "$rig" "$@"
  mkdir -p "$project" "$home/.config/sconce"
  printf '[target.lab]\nengine = "slurm"\nmeet-within = "20s"\n' >"$project/sconce.toml"
  echo 'scheduler-interval = "1s"' >"$home/.config/sconce/config.toml"
  chown -R 12346:12346 "$home"
  setpriv --reuid=12346 --regid=12346 --clear-groups env HOME="$home" "$rig/sconce" run -q "$project" -- python -c ''
}
end_rig() {
  scripts/slurm-rig stop "$rig"
  rm -rf --one-file-system "$rig"
}

in_project() { scripts/slurm-rig in "$rig" env -C "$project" "$@"; }
# What a fault makes hang is a failure, and no hang of the suite.
sconce() { in_project timeout 60 "$rig/sconce" "$@"; }
engine_id() { sed -n 's/.*"id": "\(.*\)".*/\1/p' "$jobs/$1/submitted.json"; } # engine_id JOB: what Slurm calls it
task_log() { cat "$jobs/$1/logs/task-${2:-0}.log"; }
add_target() { # add_target NAME LINE...: to the project
  printf '%s\n' "[target.$1]" 'engine = "slurm"' "${@:2}" >>"$project/sconce.toml"
}
until_true() { # until_true SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || { echo "not in time: $*"; "$@"; return 1; }
    sleep 0.2
  done
}
