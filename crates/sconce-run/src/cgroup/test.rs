//! A tree of files that behaves like a cgroup file system where placing depends on it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use sconce_host::{CgroupMode, Hierarchy};
use sconce_schema::units::Millicores;

use super::*;

/// Files by path; a folder is there when its `cgroup.procs` is.
#[derive(Default)]
struct Fake {
    files: RefCell<BTreeMap<PathBuf, String>>,
    /// Only what lies below these can be written; everything when empty.
    delegated: Vec<PathBuf>,
    v2: bool,
}

const V1_FILES: [&str; 10] = [
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "pids.max",
    "cpuset.cpus",
    "cpuset.mems",
    "devices.deny",
    "devices.allow",
    "tasks",
];

impl Fake {
    fn put(&self, path: &str, text: &str) {
        self.files.borrow_mut().insert(path.into(), text.to_owned());
    }

    fn get(&self, path: &str) -> String {
        self.files
            .borrow()
            .get(Path::new(path))
            .cloned()
            .unwrap_or_default()
    }

    fn allowed(&self, path: &Path) -> io::Result<()> {
        let open = self.delegated.is_empty() || self.delegated.iter().any(|d| path.starts_with(d));
        if open {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    fn folder(&self, path: &Path, controllers: &str, procs: &str) {
        let mut files = self.files.borrow_mut();
        files.insert(path.join("cgroup.procs"), procs.to_owned());
        if self.v2 {
            files.insert(path.join("cgroup.controllers"), controllers.to_owned());
            files.insert(path.join("cgroup.subtree_control"), String::new());
            if path != Path::new("/cg") {
                files.insert(path.join("cgroup.type"), "domain\n".to_owned());
            }
            for (controller, names) in [
                ("cpu", &["cpu.max"][..]),
                ("memory", &["memory.max", "memory.swap.max"]),
                ("pids", &["pids.max"]),
            ] {
                if controllers.contains(controller) {
                    files.extend(names.iter().map(|name| (path.join(name), String::new())));
                }
            }
        } else {
            files.extend(V1_FILES.iter().map(|name| (path.join(name), String::new())));
        }
    }

    /// What the kernel does with a write to `cgroup.subtree_control`.
    fn hand_down(&self, folder: &Path, text: &str) -> io::Result<()> {
        let controller = text.trim_start_matches('+');
        let has = |name: &str, what: &str| self.files.borrow()[&folder.join(name)].contains(what);
        if !has("cgroup.controllers", controller) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let is_top = !self
            .files
            .borrow()
            .contains_key(&folder.join("cgroup.type"));
        if !is_top && !self.files.borrow()[&folder.join("cgroup.procs")].is_empty() {
            assert_eq!(
                controller, "memory",
                "{folder:?} would become a threaded folder"
            );
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let mut files = self.files.borrow_mut();
        files
            .entry(folder.join("cgroup.subtree_control"))
            .or_default()
            .push_str(&format!("{controller} "));
        Ok(())
    }
}

impl CgroupFs for Fake {
    fn make(&self, folder: &Path) -> io::Result<()> {
        self.allowed(folder)?;
        if self
            .files
            .borrow()
            .contains_key(&folder.join("cgroup.procs"))
        {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let parent = folder.parent().unwrap().join("cgroup.subtree_control");
        let handed = self
            .files
            .borrow()
            .get(&parent)
            .cloned()
            .unwrap_or_default();
        self.folder(folder, &handed, "");
        Ok(())
    }

    fn hold(&self, _folder: &Path) -> io::Result<Option<std::os::fd::OwnedFd>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        self.allowed(file)?;
        if !self.files.borrow().contains_key(file) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if file.ends_with("cgroup.subtree_control") {
            return self.hand_down(file.parent().unwrap(), text);
        }
        if file.ends_with("cgroup.procs") {
            // A process moves: it is nowhere else then.
            let moved = match text {
                "0" => std::process::id().to_string(),
                other => other.to_owned(),
            };
            let mut files = self.files.borrow_mut();
            for (path, procs) in files.iter_mut() {
                if path.ends_with("cgroup.procs") {
                    let left = procs.lines().filter(|pid| *pid != moved);
                    *procs = left.map(|pid| format!("{pid}\n")).collect();
                }
            }
            let procs = files.get_mut(file).unwrap();
            procs.push_str(&format!("{moved}\n"));
            return Ok(());
        }
        let mut files = self.files.borrow_mut();
        let content = files.get_mut(file).unwrap();
        if file.ends_with("devices.allow") {
            content.push_str(&format!("{text};"))
        } else {
            *content = text.to_owned()
        }
        Ok(())
    }

    fn read(&self, file: &Path) -> io::Result<String> {
        self.files
            .borrow()
            .get(file)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, folder: &Path) -> io::Result<()> {
        let procs = self.read(&folder.join("cgroup.procs"))?;
        if !procs.is_empty() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.files
            .borrow_mut()
            .retain(|path, _| !path.starts_with(folder));
        Ok(())
    }

    fn filter_devices(&self, folder: &Path, program: &[EbpfInstruction]) -> io::Result<()> {
        self.allowed(folder)?;
        if !self.v2 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = program.len().to_string();
        self.put(folder.join("FILTER").to_str().unwrap(), &length);
        Ok(())
    }

    fn writable(&self, path: &Path) -> bool {
        let there = |p: &Path| self.files.borrow().keys().any(|file| file.starts_with(p));
        there(path) && self.allowed(path).is_ok()
    }
}

const ALL: RunLimits = RunLimits {
    cpus: Some(Millicores(2500)),
    memory: Some(Bytes::from_gib(4)),
    pids: Some(100),
    shm: None,
    cpuset: None,
    memory_swap: None,
    io_weight: None,
    hugepages: None,
    nofile: None,
    memlock: None,
};

fn asked<'a>(limits: &'a RunLimits, privileged: bool) -> CgroupRequest<'a> {
    CgroupRequest {
        id: "digits-1",
        limits,
        disks_weighed: true,
        devices: None,
        privileged,
        waiting: None,
    }
}

fn v2_tree(own: &str) -> Cgroups {
    Cgroups {
        mode: CgroupMode::V2,
        hierarchies: vec![Hierarchy {
            v2: true,
            controllers: ["cpu", "memory", "pids"].map(str::to_owned).into(),
            mount: "/cg".into(),
            own: Some(own.into()),
            delegated: false,
        }],
    }
}

fn v1_tree() -> Cgroups {
    let hierarchy = |controllers: &[&str], mount: &str, own: &str| Hierarchy {
        v2: false,
        controllers: controllers.iter().map(|&c| c.to_owned()).collect(),
        mount: mount.into(),
        own: Some(own.into()),
        delegated: true,
    };
    Cgroups {
        mode: CgroupMode::V1,
        hierarchies: vec![
            hierarchy(&["cpu", "cpuacct"], "/cg/cpu", "/cg/cpu"),
            hierarchy(&["memory"], "/cg/memory", "/cg/memory/job7"),
            hierarchy(&["devices"], "/cg/devices", "/cg/devices"),
        ],
    }
}

fn create<'a>(fake: &'a Fake, cgroups: &Cgroups, asked: CgroupRequest<'_>) -> Cgroup<'a> {
    let placement = Placement::choose(fake, Some(cgroups), asked);
    Cgroup::create(fake, placement, asked)
}

fn names(cgroup: &Cgroup<'_>) -> Vec<String> {
    cgroup
        .unenforced_limits()
        .iter()
        .map(|u| u.what.clone())
        .collect()
}

#[test]
fn v1_limits_stand_below_the_callers_own_cgroups() {
    let fake = Fake::default();
    for folder in ["/cg/cpu", "/cg/memory", "/cg/memory/job7", "/cg/devices"] {
        fake.folder(Path::new(folder), "", "");
    }
    let devices = [DeviceNode {
        path: "/dev/nvidia0".to_owned(),
        host_path: String::new(),
        r#type: "c".to_owned(),
        major: 195,
        minor: 0,
    }];
    let asked = CgroupRequest {
        devices: Some(&devices),
        ..asked(&ALL, true)
    };
    let cgroup = create(&fake, &v1_tree(), asked);
    assert_eq!(
        fake.get("/cg/cpu/sconce/digits-1/cpu.cfs_quota_us"),
        "250000"
    );
    assert_eq!(
        fake.get("/cg/memory/job7/sconce/digits-1/memory.limit_in_bytes"),
        "4294967296"
    );
    assert_eq!(
        fake.get("/cg/memory/job7/sconce/digits-1/memory.memsw.limit_in_bytes"),
        "4294967296"
    );
    assert_eq!(fake.get("/cg/devices/sconce/digits-1/devices.deny"), "a");
    let allowed = fake.get("/cg/devices/sconce/digits-1/devices.allow");
    assert!(
        allowed.starts_with("c 1:3 rw;") && allowed.ends_with("c 195:0 rw;"),
        "{allowed}"
    );
    assert_eq!(names(&cgroup), ["pids"], "there is no pids controller");
    let RunCgroups::V1(folders) = cgroup.to_run_cgroups() else {
        panic!()
    };
    assert_eq!(folders.cpu, folders.cpuacct);
    assert_eq!(folders.pids, None);
    cgroup.remove().unwrap();
    assert_eq!(fake.get("/cg/cpu/sconce/digits-1/cgroup.procs"), "");
    assert!(!fake.writable(Path::new("/cg/cpu/sconce/digits-1")));
}

#[test]
fn v1_gives_a_plain_user_nothing_and_says_so() {
    let fake = Fake {
        delegated: vec!["/home".into()],
        ..Fake::default()
    };
    for folder in ["/cg/cpu", "/cg/memory/job7", "/cg/devices"] {
        fake.folder(Path::new(folder), "", "");
    }
    let cgroup = create(&fake, &v1_tree(), asked(&ALL, false));
    assert_eq!(names(&cgroup), ["memory", "cpus", "pids"]);
    assert!(
        cgroup.unenforced_limits()[0]
            .hint
            .as_ref()
            .unwrap()
            .contains("cgroup v2")
    );
    assert_eq!(cgroup.to_run_cgroups(), RunCgroups::None);
    let nothing = RunLimits::default();
    assert_eq!(
        names(&create(&fake, &v1_tree(), asked(&nothing, false))),
        Vec::<String>::new()
    );
}

#[test]
fn v2_root_goes_to_the_top() {
    let fake = Fake {
        v2: true,
        ..Fake::default()
    };
    fake.folder(Path::new("/cg"), "cpu memory pids", "1\n");
    fake.folder(Path::new("/cg/session"), "", "7\n");
    let cgroup = create(&fake, &v2_tree("/cg/session"), asked(&ALL, true));
    assert_eq!(names(&cgroup), Vec::<String>::new());
    let folder = "/cg/sconce/digits-1";
    assert_eq!(cgroup.to_run_cgroups(), RunCgroups::V2(folder.into()));
    assert_eq!(fake.get(&format!("{folder}/cpu.max")), "250000 100000");
    assert_eq!(fake.get(&format!("{folder}/memory.max")), "4294967296");
    assert_eq!(fake.get(&format!("{folder}/memory.swap.max")), "0");
    assert_eq!(fake.get(&format!("{folder}/pids.max")), "100");
}

#[test]
fn v2_filters_devices_where_they_are_asked_for() {
    let fake = Fake {
        v2: true,
        ..Fake::default()
    };
    fake.folder(Path::new("/cg"), "cpu memory pids", "");
    create(&fake, &v2_tree("/cg"), asked(&ALL, true));
    assert_eq!(fake.get("/cg/sconce/digits-1/FILTER"), "");
    fake.remove(Path::new("/cg/sconce/digits-1")).unwrap();
    let with_devices = CgroupRequest {
        devices: Some(&[]),
        ..asked(&ALL, true)
    };
    create(&fake, &v2_tree("/cg"), with_devices);
    assert_ne!(fake.get("/cg/sconce/digits-1/FILTER"), "");
}

#[test]
fn v2_user_alone_in_a_delegated_scope_steps_aside() {
    let scope = "/cg/user/run-1.scope";
    let fake = Fake {
        v2: true,
        delegated: vec![scope.into()],
        ..Fake::default()
    };
    fake.folder(
        Path::new(scope),
        "cpu memory pids",
        &format!("{}\n", std::process::id()),
    );
    let cgroup = create(&fake, &v2_tree(scope), asked(&ALL, false));
    assert_eq!(names(&cgroup), Vec::<String>::new());
    assert_eq!(fake.get(&format!("{scope}/cgroup.procs")), "");
    assert_eq!(
        fake.get(&format!("{scope}/sconce-itself/cgroup.procs")),
        format!("{}\n", std::process::id())
    );
    assert_eq!(
        fake.get(&format!("{scope}/sconce/digits-1/memory.max")),
        "4294967296"
    );
}

#[test]
fn v2_user_beginning_a_run_in_the_background_steps_aside_with_who_waits_for_it() {
    let (slice, scope) = ("/cg/user/app.slice", "/cg/user/app.slice/run-1.scope");
    let (me, caller) = (std::process::id(), 41);
    let fake = Fake {
        v2: true,
        delegated: vec![slice.into()],
        ..Fake::default()
    };
    fake.folder(Path::new(slice), "cpu memory pids", "");
    let procs = format!("{caller}\n{me}\n");
    fake.folder(Path::new(scope), "cpu memory pids", &procs);
    let asked = CgroupRequest {
        waiting: Some(caller),
        ..asked(&ALL, false)
    };
    let cgroup = create(&fake, &v2_tree(scope), asked);
    assert_eq!(names(&cgroup), Vec::<String>::new());
    // Its own unit's folder and not one beside it, which systemd would know nothing of.
    let folder = format!("{scope}/sconce/digits-1");
    assert_eq!(cgroup.to_run_cgroups(), RunCgroups::V2(folder.into()));
    let aside = fake.get(&format!("{scope}/sconce-itself/cgroup.procs"));
    let mut aside: Vec<&str> = aside.lines().collect();
    aside.sort_unstable_by_key(|pid| *pid != "41");
    assert_eq!(aside, ["41", &me.to_string()]);
}

#[test]
fn v2_user_beside_a_shell_goes_up_to_where_nobody_lives() {
    let (slice, scope) = ("/cg/user/app.slice", "/cg/user/app.slice/terminal.scope");
    let fake = Fake {
        v2: true,
        delegated: vec![slice.into()],
        ..Fake::default()
    };
    fake.folder(Path::new(slice), "cpu memory pids", "");
    fake.folder(Path::new(scope), "memory pids", "41\n42\n");
    let cgroup = create(&fake, &v2_tree(scope), asked(&ALL, false));
    assert_eq!(names(&cgroup), Vec::<String>::new());
    assert_eq!(
        fake.get(&format!("{slice}/sconce/digits-1/memory.max")),
        "4294967296"
    );
}

#[test]
fn v2_user_without_delegation_is_told_how_to_get_it() {
    let session = "/cg/user/session-3.scope";
    let fake = Fake {
        v2: true,
        delegated: vec!["/home".into()],
        ..Fake::default()
    };
    fake.folder(Path::new(session), "cpu memory pids", "41\n");
    let cgroup = create(&fake, &v2_tree(session), asked(&ALL, false));
    assert_eq!(names(&cgroup), ["cpus", "memory", "pids"]);
    assert!(
        cgroup.unenforced_limits()[0]
            .hint
            .as_ref()
            .unwrap()
            .contains("Delegate=yes")
    );
}

#[test]
fn a_machine_without_cgroups() {
    let fake = Fake::default();
    let asked = asked(&ALL, true);
    let cgroup = Cgroup::create(&fake, Placement::choose(&fake, None, asked), asked);
    assert_eq!(names(&cgroup), ["cpus", "memory", "pids"]);
}

#[test]
fn kills_in_a_jobs_cgroup_count_from_the_runs_beginning_on() {
    // With v2 the task's own cgroup has no account, and the step's has.
    let fake = Fake {
        v2: true,
        ..Fake::default()
    };
    let events = "/cg/job_7/step_0/memory.events";
    fake.folder(Path::new("/cg/job_7/step_0/user"), "", "");
    fake.put(events, "oom 1\noom_kill 1\n");
    let job = |fake: &Fake, tree: &Cgroups| Placement::in_job(fake, Some(tree), &asked(&ALL, true));
    let cgroup = Cgroup {
        placement: job(&fake, &v2_tree("/cg/job_7/step_0/user")),
        files: &fake,
        memory: None,
    };
    assert_eq!(cgroup.out_of_memory(), None);
    fake.put(events, "oom 3\noom_kill 3\n");
    let killed = OomKill {
        limit: None,
        kills: 2,
    };
    assert_eq!(cgroup.out_of_memory(), Some(killed));
    for text in ["", "oom_kill x\n", "oom_kill 0\n"] {
        fake.put(events, text);
        assert_eq!(cgroup.out_of_memory(), None, "{text}");
    }
    assert!(
        Placement::in_job(&fake, None, &asked(&ALL, true))
            .job_memory
            .is_none()
    );
}

#[test]
fn kills_are_the_runs_own_only_when_its_limit_was_hit() {
    let fake = Fake {
        v2: true,
        ..Fake::default()
    };
    fake.folder(Path::new("/cg"), "cpu memory pids", "");
    let cgroup = create(&fake, &v2_tree("/cg"), asked(&ALL, true));
    let events = "/cg/sconce/digits-1/memory.events";
    for (text, expected) in [
        ("low 0\noom 0\noom_kill 0\n", None),
        (
            "low 0\noom 3\noom_kill 2\n",
            Some((Some(Bytes::from_gib(4)), 2)),
        ),
        ("low 0\noom 0\noom_kill 1\n", Some((None, 1))),
        ("nonsense", None),
    ] {
        fake.put(events, text);
        let found = cgroup.out_of_memory().map(|oom| (oom.limit, oom.kills));
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn small_shares_of_a_cpu_get_a_long_period() {
    assert_eq!(cpu_quota(2_000), (200_000, 100_000));
    assert_eq!(cpu_quota(10), (1_000, 100_000));
    assert_eq!(cpu_quota(9), (9_000, 1_000_000));
    assert_eq!(cpu_quota(1), (1_000, 1_000_000));
}

#[test]
fn v2_what_is_not_delegated_is_said_and_the_rest_is_limited() {
    let scope = "/cg/user/run-1.scope";
    let fake = Fake {
        v2: true,
        delegated: vec![scope.into()],
        ..Fake::default()
    };
    fake.folder(Path::new("/cg"), "cpu memory pids cpuset io", "");
    fake.folder(Path::new(scope), "cpu memory pids", "");
    let limits = RunLimits {
        cpuset: "0-1".parse().ok(),
        io_weight: Some(50),
        hugepages: Some(Bytes::from_mib(4)),
        ..ALL
    };
    let cgroup = create(&fake, &v2_tree(scope), asked(&limits, false));
    assert_eq!(names(&cgroup), ["hugepages", "cpuset", "io-weight"]);
    let said = cgroup.unenforced_limits();
    assert!(said[0].why.contains("no `hugetlb`"), "{said:?}");
    assert!(said[1].hint.as_ref().unwrap().contains("Delegate=cpuset"));
    let memory = format!("{scope}/sconce/digits-1/memory.max");
    assert_eq!(fake.get(&memory), "4294967296");
}

#[test]
fn v1_a_folder_of_cpusets_has_cpus_and_nodes_before_anyone_joins() {
    let fake = Fake::default();
    let mut tree = v1_tree();
    let mount = PathBuf::from("/cg/cpuset");
    tree.hierarchies.push(Hierarchy {
        v2: false,
        controllers: vec!["cpuset".to_owned()],
        mount: mount.clone(),
        own: Some(mount.clone()),
        delegated: true,
    });
    fake.folder(&mount, "", "");
    fake.put("/cg/cpuset/cpuset.cpus", "0-7\n");
    fake.put("/cg/cpuset/cpuset.mems", "0-1\n");
    let limits = RunLimits {
        cpuset: "2-3".parse().ok(),
        ..RunLimits::default()
    };
    let cgroup = create(&fake, &tree, asked(&limits, true));
    assert_eq!(names(&cgroup), Vec::<String>::new());
    for (folder, cpus) in [("sconce", "0-7"), ("sconce/digits-1", "2-3")] {
        let read = |name: &str| fake.get(&format!("/cg/cpuset/{folder}/cpuset.{name}"));
        assert_eq!(
            (read("cpus").as_str(), read("mems").as_str()),
            (cpus, "0-1"),
            "{folder}"
        );
    }
}
