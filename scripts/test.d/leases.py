"""What `leases` checks, within the machine that it made: leases.py WORK."""

import functools
import hashlib
import io
import json
import os
import platform
import pwd
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time

import checks

WORK = sys.argv[1]
SCONCE = f"{WORK}/sconce"
SOCKET = "/run/sconce/lease.sock"
LOG = "/var/lib/sconce/leases/leases.log"
POLICY = "/etc/sconce/policy.toml"
IMAGE = f"{WORK}/image"
USERS = ["anna", "bo", "cai", "dana", "eli", "fay", "gus", "hana"]
RULES = """half-life = "7d"
patience = "1h"
idle-grace = "6s"

[default]
cards = 4
longest = "1h"
queue = 3

[users.anna]
priority = 5

[users.dana]
cards = 8

[users.hana]
idle = "3s"

[users.eli]
longest = "4s"
"""
# What each of the users sees is shown.
check = functools.partial(checks.check, show=True)


def until(what, found, seconds=20):
    """What `found` gives once it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.05)
    check(f"within {seconds} s: {what}", False)
    return None


# --- the cards ---------------------------------------------------------------------------------
class Card:
    """A card of the stand-in for NVML."""

    def __init__(self, index):
        self.index, self.use, self.lost, self.processes = index, 50, False, []

    def text(self):
        lines = [
            "card",
            "name NVIDIA H100 80GB HBM3",
            f"uuid GPU-5ca1ab1e-0000-4000-8000-00000000000{self.index}",
            f"bus 00000000:{self.index + 10}:00.0",
            f"minor {self.index}",
            "memory 85520809984 0",
            f"utilisation {self.use} 0",
        ]
        lines += ["handle 15", "lost 15"] if self.lost else []
        return lines + [f"process {pid} {size}" for pid, size in self.processes]


cards = [Card(index) for index in range(8)]


def play():
    lines = ["driver 580.65.06", "nvml 13.580.65.06", "cuda 13000"]
    for card in cards:
        lines += card.text()
    with open(f"{WORK}/machine.new", "w") as file:
        file.write("\n".join(lines) + "\n")
    os.rename(f"{WORK}/machine.new", f"{WORK}/machine")


def index(key):
    return int(key.split(":")[1]) - 10


# --- who does what -----------------------------------------------------------------------------
def start(user, *words, uid=None):
    """A command of a user; its process is the command itself."""
    entry = pwd.getpwnam(user)
    env = {
        "HOME": entry.pw_dir,
        "PATH": "/usr/bin:/bin",
        "NO_COLOR": "1",
        "SCONCE_STAND_IN_MACHINE": f"{WORK}/machine",
    }
    who = entry.pw_uid if uid is None else uid
    return subprocess.Popen(
        [SCONCE, *words],
        env=env,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=who,
        group=entry.pw_gid,
        extra_groups=[],
    )


def ended(process, seconds=30):
    """Its exit code and all that it said."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        said += f"(still there after {seconds} s)"
    return process.returncode, said


def do(user, *words, uid=None):
    return ended(start(user, *words, uid=uid))


def look():
    """What the service tells root."""
    talk = socket.socket(socket.AF_UNIX)
    talk.settimeout(5)
    talk.connect(SOCKET)
    talk.sendall(b'{"format":1,"ask":"look"}\n')
    said = talk.makefile().readline()
    talk.close()
    return json.loads(said)["overview"]


def held(user):
    return [lease for lease in look()["leases"] if lease["user"] == user]


def queue():
    return [waiting["user"] for waiting in look()["queue"]]


def free_all():
    for lease in look()["leases"] + look()["queue"]:
        do("root", "lease", "return", str(lease["id"]))


service_said = open(f"{WORK}/service", "w+")


def serve(*before):
    """The service, once it answers."""
    env = dict(os.environ, SCONCE_STAND_IN_MACHINE=f"{WORK}/machine", NO_COLOR="1")
    env["LEASES_CLOCK"] = f"{WORK}/clock"
    service = subprocess.Popen([*before, SCONCE, "lease", "serve"], env=env, stdout=service_said, stderr=service_said)

    def answers():
        try:
            return look()
        except OSError:
            return None

    until("the service answers", answers)
    return service


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


# --- an image ----------------------------------------------------------------------------------
def make_image():
    """A layout with busybox, whose own variables ask for all cards."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as layer:
        for folder in ["bin", "dev", "etc", "proc", "sys", "tmp", "usr"]:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            layer.addfile(entry)
        layer.add("/bin/busybox", "bin/busybox")
        for name in ["sh", "ls", "sleep", "env", "echo", "cat"]:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(entry)
    os.makedirs(f"{IMAGE}/blobs/sha256")

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        with open(f"{IMAGE}/blobs/sha256/{digest}", "wb") as file:
            file.write(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def text(value):
        return json.dumps(value).encode()

    layer = blob("layer.v1.tar", raw.getvalue())
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "config": {"Env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"], "Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    manifest |= {"config": blob("config.v1+json", text(config)), "layers": [layer]}
    listed = {"schemaVersion": 2, "manifests": [blob("manifest.v1+json", text(manifest))]}
    for name, value in [("index.json", listed), ("oci-layout", {"imageLayoutVersion": "1.0.0"})]:
        with open(f"{IMAGE}/{name}", "wb") as file:
            file.write(text(value))


def run(user, gpus, script):
    return start(user, "run", f"oci:{IMAGE}", "--gpus", str(gpus), "--", "sh", "-c", script)


def nodes(said):
    """The cards whose nodes a run listed."""
    return sorted(int(number) for number in re.findall(r"\bnvidia(\d+)\b", said))


# --- the log -----------------------------------------------------------------------------------
def log():
    """All decisions, in order, from the log's lines."""
    events = []
    for path in [LOG]:
        with open(path) as file:
            for line in list(file)[1:]:
                events += json.loads(line[9:])
    return events


def given_twice(events):
    holder, wrong = {}, []
    for event in events:
        kind, what = next(iter(event.items()))
        if kind == "granted":
            for card in what["cards"]:
                if card in holder:
                    wrong.append(f"card {card}: leases {holder[card]} and {what['id']}")
                holder[card] = what["id"]
        elif kind == "ended":
            holder = {card: lease for card, lease in holder.items() if lease != what["id"]}
    return wrong


def story(events):
    """The log for people."""
    who, lines = {}, []
    for event in events:
        kind, what = next(iter(event.items()))
        if kind == "queued":
            who[what["id"]] = what["person"]["name"]
            count = next(iter(what["take"]["wanted"].values()))
            count = count["cards"] if isinstance(count, dict) else len(count)
            lines.append(f"{what['id']:3} {who[what['id']]:5} asks for {count}")
        elif kind == "granted":
            named = ",".join(str(index(card)) for card in what["cards"])
            lines.append(f"{what['id']:3} {who[what['id']]:5} gets   {named}")
        elif kind in ("ended", "left", "warned"):
            lines.append(f"{what['id']:3} {who[what['id']]:5} {kind}  {what.get('why', '')}")
    return "\n".join(lines)


# --- eight users ---------------------------------------------------------------------------------
def the_queue():
    """Who waits comes by priority, then by use, then by arrival; cai used something before."""
    code, said = do("cai", "lease", "take", "--gpus", "4", "--for", "5m")
    time.sleep(1.2)
    number = held("cai")[0]["id"]
    check("take prints the cards for others to use", code == 0 and "0,1,2,3" in said, said)
    code, said = do("bo", "lease", "return", str(number))
    check("nobody returns another's", code == 3 and f"lease {number} is cai's" in said, said)
    check("the holder returns it", do("cai", "lease", "return", str(number))[0] == 0)
    do("dana", "lease", "take", "--gpus", "8", "--for", "10m")
    wanted = {"bo": 1, "cai": 2, "anna": 1, "eli": 4, "fay": 1, "gus": 1, "hana": 1}
    waiting = {}
    for user, count in wanted.items():
        length = "4s" if user == "eli" else "5m"
        waiting[user] = start(user, "lease", "take", "--gpus", str(count), "--for", length)
        until(f"{user} waits", lambda user=user: user in queue())
    arrival = list(wanted)
    policy = sorted(arrival, key=lambda user: (-5 * (user == "anna"), user == "cai", arrival.index(user)))
    check("the queue's order is the policy's: priority, use, arrival", queue() == policy, " ".join(queue()))
    code, said = do("root", "lease", "list")
    check("list shows who has what and who waits", code == 0 and "PLACE" in said and re.search(r"in \d+ min", said), said)
    code, said = do("dana", "lease", "extend", str(held("dana")[0]["id"]), "--by", "10m")
    check("no extension while others wait", code == 1 and "waits for these cards" in said, said)
    do("dana", "lease", "return", str(held("dana")[0]["id"]))
    first = [user for user in policy if user not in ("hana", "cai")]
    for user in first:
        code, said = ended(waiting.pop(user))
        check(f"{user} has cards", code == 0 and re.search(r"^[\d,]+$", said, re.M), said.splitlines()[-1])
    # eli's lease is of four seconds; the two who are left have its cards then.
    for user in ("hana", "cai"):
        check(f"{user} has cards after eli's time", ended(waiting.pop(user))[0] == 0)
    number = held("bo")[0]["id"]
    code, said = do("bo", "lease", "extend", str(number), "--by", "10m")
    check("an extension when nobody waits", code == 0, said)
    code, said = do("bo", "lease", "extend", str(number), "--by", "1h")
    check("no longer than the policy's longest", code == 3 and "the longest lease is 1 h" in said, said)
    free_all()


def runs_at_once():
    """Eight runs on eight cards: each sees its own, whatever the image asks for."""
    script = "ls /dev; env; sleep 2"
    runs = {user: run(user, 1, script) for user in USERS}
    seen = {user: ended(process) for user, process in runs.items()}
    own = {user: nodes(said) for user, (_, said) in seen.items()}
    fine = all(code == 0 for code, _ in seen.values())
    check("eight runs at once, as eight users", fine, "" if fine else seen)
    check("each has one card's node", all(len(node) == 1 for node in own.values()), own)
    every = sorted(sum(own.values(), []))
    check("no node twice", every == list(range(8)), every)
    void = all("NVIDIA_VISIBLE_DEVICES=void" in said for _, said in seen.values())
    none = all("NVIDIA_VISIBLE_DEVICES=all" not in said for _, said in seen.values())
    check("what the image says of its cards is overridden", void and none)
    check("their leases ended with them", look()["leases"] == [], look()["leases"])
    do("fay", "lease", "take", "--gpus", "device=2,5", "--for", "5m")
    code, said = ended(run("fay", 2, "ls /dev"))
    check("a run uses what its user holds", code == 0 and nodes(said) == [2, 5], nodes(said))
    code, said = ended(run("root", 1, "ls /dev"))
    check("root's run takes another", code == 0 and nodes(said) == [0], nodes(said))
    code, said = ended(start("gus", "run", f"oci:{IMAGE}", "--gpus", "5", "--", "true"))
    check("a run cannot have more than the policy gives", code == 3 and "gus may hold 4 at once" in said, said)
    free_all()


def the_run_ends_with_its_lease():
    """eli's leases are of four seconds, a run's too: SIGTERM comes then, not some seconds later."""
    script = "trap 'echo told; exit 5' TERM; echo began; while :; do sleep 0.1; done"
    process = run("eli", 1, script)
    until("eli's run has a lease", lambda: held("eli"))
    gone = until("eli's lease ends", lambda: not held("eli"))
    began = time.monotonic()
    code, said = ended(process)
    late = time.monotonic() - began
    check("a run whose time is over is told and ends", gone and "told" in said and code == 5, said[:400])
    print(f"     it ended {late:.1f} s after its lease")


# --- idle ------------------------------------------------------------------------------------------
def start_idle():
    """hana's run does nothing on card 7."""
    cards[7].use = 0
    play()
    return start("hana", "run", f"oci:{IMAGE}", "--gpus", "device=7", "--", "sleep", "100")


def end_idle(process):
    shown = until("list says that it will be taken back", lambda: "will be taken back" in do("bo", "lease", "list")[1])
    check("list warns of an unused card", shown, [l for l in do("bo", "lease", "list")[1].splitlines() if "hana" in l])
    code, said = ended(process)
    warned, over = "the cards are not used" in said, "it is over, the run ends" in said
    check("the run is warned, then ended", warned and over and code != 0, f"{said[:300]}\nexit code {code}")
    remark = [line for line in look()["remarks"] if "hana" in line]
    check("and list remembers why", any("nobody used its cards" in line for line in remark), remark)
    cards[7].use = 50
    play()


# --- what goes wrong -------------------------------------------------------------------------------
def a_holder_killed():
    process = run("fay", 1, "sleep 100")
    lease = until("fay's run has its card", lambda: held("fay"))[0]
    process.kill()
    gone = until("its lease is gone", lambda: not held("fay"))
    check("a holder killed with -9 holds nothing", gone and lease["pid"] == process.pid)
    process.communicate()


def a_service_killed(service):
    """And started again with the clock a day back."""
    do("bo", "lease", "take", "--gpus", "2", "--for", "30m")
    do("dana", "lease", "take", "--gpus", "6", "--for", "10m")
    waiting = start("cai", "lease", "take", "--gpus", "1", "--for", "10m")
    running = run("bo", 1, "echo began; sleep 6; echo done")
    until("cai waits", lambda: queue() == ["cai"])
    while "began" not in running.stdout.readline():
        pass
    before = [(lease["id"], lease["until_s"] - look()["now_s"]) for lease in look()["leases"]]
    kill(service)
    code, said = do("gus", "lease", "list")
    check("without the service leases say so", code == 7 and "does not answer" in said, said)
    code, said = do("gus", "run", f"oci:{IMAGE}", "--gpus", "1", "--", "true")
    check("and no run with cards passes by", code == 7 and "does not answer" in said, said)
    code, said = ended(start("gus", "run", f"oci:{IMAGE}", "--gpus", "0", "--", "echo", "runs"))
    check("but one without cards", code == 0 and "runs" in said)
    with open(f"{WORK}/clock", "w") as file:
        file.write("-86400")
    service = serve("env", f"LD_PRELOAD={WORK}/clock.so")
    now = look()
    check("the test's clock is a day back", abs(time.time() - 86400 - now["now_s"]) < 100, now["now_s"])
    after = [(lease["id"], lease["until_s"] - now["now_s"]) for lease in now["leases"]]
    same = [a[0] for a in before] == [a[0] for a in after]
    close = all(0 <= b[1] - a[1] < 30 for a, b in zip(after, before))
    check("a new service has the same leases, with the time that they had left", same and close, f"{before}\n{after}")
    check("who waited still waits", queue() == ["cai"])
    code, said = ended(running)
    check("a run goes on meanwhile", code == 0 and "done" in said, said[:600])
    do("dana", "lease", "return", str(held("dana")[0]["id"]))
    code, said = ended(waiting)
    check("and who waited has the card", code == 0, said)
    free_all()
    os.remove(f"{WORK}/clock")
    kill(service)
    return serve()


def a_card_falls_off():
    do("cai", "lease", "take", "--gpus", "device=4", "--for", "10m")
    cards[4].lost = True
    play()
    until("it is seen", lambda: len(look()["cards"]) == 7)
    line = [line for line in do("cai", "lease", "list")[1].splitlines() if "does not answer" in line]
    check("a leased card that fell off the bus is shown", len(line) == 1 and "cai" in line[0], line)
    code, said = do("dana", "lease", "take", "--gpus", "8", "--for", "1m")
    check("it is not counted", code == 3 and "this machine has 7" in said, said)
    code, said = do("dana", "lease", "take", "--gpus", "7", "--for", "1m", "--no-wait")
    check("the others can be had", code == 0, said)
    cards[4].lost = False
    play()
    until("it is back", lambda: len(look()["cards"]) == 8)
    check("when it comes back it is still the holder's", held("cai") and held("cai")[0]["lost"] == [])
    free_all()


def two_at_one_instant():
    both = [start(user, "lease", "take", "--gpus", "device=3", "--for", "1m", "--no-wait") for user in ("bo", "cai")]
    answers = [ended(process) for process in both]
    codes = sorted(code for code, _ in answers)
    check("two at one instant: one has the card", codes == [0, 1], "\n".join(said for _, said in answers))
    free_all()


def asked_too_much():
    code, said = do("dana", "lease", "take", "--gpus", "9", "--for", "1m")
    check("more cards than there are", code == 3 and "9 cards were asked for and this machine has 8" in said, said)
    code, said = do("bo", "lease", "take", "--gpus", "5", "--for", "1m")
    check("more cards than the policy gives", code == 3 and "bo may hold 4 at once" in said, said)
    do("dana", "lease", "take", "--gpus", "8", "--for", "10m")
    waiting = []
    for _ in range(3):
        waiting.append(start("bo", "lease", "take", "--for", "1m"))
    until("three of bo's wait", lambda: queue() == ["bo"] * 3)
    code, said = do("bo", "lease", "take", "--for", "1m")
    check("more in the queue than the policy lets wait", code == 1 and "3 requests of bo wait already" in said, said)
    other = start("cai", "lease", "take", "--for", "1m")
    check("another may still wait", until("cai waits", lambda: "cai" in queue()))
    for process in [*waiting, other]:
        process.kill()
        process.communicate()
    check("whoever is killed waits no more", until("nobody waits", lambda: queue() == []))
    free_all()


def the_true_reason():
    """Four of eight cards are free, and bo may have no more; who gives whose place up."""
    do("bo", "lease", "take", "--gpus", "4", "--for", "10m")
    limit = "bo holds 4 of the 4 that bo may hold at once"
    code, said = do("bo", "lease", "take", "--for", "1m", "--no-wait")
    check("a user's own limit is the reason, not the cards", code == 1 and limit in said and "not free" not in said, said)
    waits = start("bo", "lease", "take", "--for", "1m")
    until("bo waits", lambda: queue() == ["bo"])
    code, said = do("cai", "lease", "list")
    check("the list says why bo waits", limit in said and "10 min" in said, said)
    reason = look()["queue"][0]["why"]
    check("for programs too", reason == {"kind": "limit", "user": "bo", "held": 4, "asked": 0, "limit": 4}, reason)
    do("root", "lease", "return", str(look()["queue"][0]["id"]))
    code, said = ended(waits)
    check("whose place was given up is told by whom", code == 1 and "given up by root" in said and limit in said, said)
    code, said = do("bo", "lease", "take", "--gpus", "device=12", "--for", "1m")
    short = max(len(line) for line in said.splitlines()) < 120
    check("a card that is not there is told in short lines", code == 3 and "there is no card `12`" in said and short, said)
    code, said = do("bo", "lease", "take", "--for", "soon")
    check("what is no time is told the forms", code == 2 and "1h30m" in said, said)
    code, said = do("root", "lease", "serve")
    check("a second service does not begin", code == 7, said)
    free_all()


def a_policy_with_typing_errors():
    with open(POLICY, "w") as file:
        file.write(RULES + "[users.ana]\ncards = 99\n[groups.visoin]\ncards = 1\n")
    said = until("the service says so", lambda: "[users.ana]" in open(f"{WORK}/service").read())
    told = [
        "[groups.visoin]: this machine knows no group visoin",
        "[users.ana]: this machine knows no user ana",
        "[users.ana]: `cards` of 99, and there are 8",
    ]
    text = open(f"{WORK}/service").read()
    check("names and numbers that nobody has are warnings", said and all(line in text for line in told), text[-600:])
    code, said = do("root", "lease", "list")
    check("which the owner sees in the list", all(line in said for line in told), said)
    check("and others do not", "visoin" not in do("bo", "lease", "list")[1])
    with open(POLICY, "w") as file:
        file.write(RULES)


def a_policy_that_contradicts_itself(service):
    with open(POLICY, "w") as file:
        file.write(RULES.replace('longest = "1h"', 'longest = "48h"\nhours-a-week = 20', 1))
    said = until("the service says so", lambda: "contradicts" in open(f"{WORK}/service").read())
    line = [line for line in open(f"{WORK}/service").read().splitlines() if "contradicts" in line]
    check("a policy that contradicts itself is told with its line", said and "line 7" in line[0], line[0])
    said = do("gus", "lease", "list")[1]
    check("everybody sees that it is refused, and why", "the rules before hold" in said and "line 7" in said, said)
    check("the rules before hold", "gus may hold 4" in do("gus", "lease", "take", "--gpus", "5", "--for", "1m")[1])
    kill(service)
    code, said = do("root", "lease", "serve")
    check("no service begins with it", code == 3 and "line 7" in said, said)
    with open(POLICY, "w") as file:
        file.write(RULES)
    return serve()


def strangers():
    code, said = do("bo", "lease", "take", "--for", "1m", uid=4_000_000)
    check("a user id without an account has nothing", code == 3 and "user id 4000000 has no account" in said, said)
    with open("/etc/subuid") as file:
        first = next(int(line.split(":")[1]) for line in file if line.startswith("anna:"))
    code, said = do("anna", "lease", "take", "--for", "1m", "--no-wait", uid=first + 5)
    check("a subordinate id is charged to its owner", code == 0 and len(held("anna")) == 1, said)
    free_all()


def open_of(process):
    return {int(number) for number in os.listdir(f"/proc/{process.pid}/fd")}


def hostile(service):
    """300 silent connections of one user; then a service without descriptors."""
    child = os.fork()
    if child == 0:
        entry = pwd.getpwnam("gus")
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        talks = []
        for _ in range(300):
            talk = socket.socket(socket.AF_UNIX)
            talk.settimeout(1)
            try:
                talk.connect(SOCKET)
                talks.append(talk)
            except OSError:
                pass
        open(f"/home/gus/there", "w").close()
        time.sleep(60)
        os._exit(0)
    until("gus holds the door", lambda: os.path.exists("/home/gus/there"))
    code, said = do("bo", "lease", "list")
    check("one user with 300 connections does not shut out another", code == 0, said if code else "")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    limit = ["prlimit", "--pid", str(service.pid)]
    # The lowest that is free: the next connection finds none.
    taken, before = open_of(service), None
    while taken != before:  # Those of gus are being closed.
        time.sleep(0.5)
        taken, before = open_of(service), taken
    most = min(number for number in range(len(taken) + 1) if number not in taken)
    subprocess.run([*limit, f"--nofile={most}:"], check=True)
    process = start("bo", "lease", "list")
    time.sleep(0.5)
    alive = service.poll() is None and process.poll() is None
    subprocess.run([*limit, "--nofile=1024:"], check=True)
    code, said = ended(process)
    check("a service without descriptors pauses and goes on", alive and code == 0, (alive, code, said[:300]))


def outside():
    do("bo", "lease", "take", "--gpus", "device=1", "--for", "10m")
    entry = pwd.getpwnam("gus")
    stray = subprocess.Popen(["sleep", "100"], user=entry.pw_uid, group=entry.pw_gid)
    cards[1].processes, cards[2].processes = [(stray.pid, 2 << 30)], [(stray.pid, 1 << 30)]
    play()
    code, said = do("cai", "lease", "list")
    lines = [line for line in said.splitlines() if "process" in line]
    way = f"card 1: process {stray.pid} (sleep) of gus holds 2 GiB in the way of lease {held('bo')[0]['id']}"
    none = f"card 2: process {stray.pid} (sleep) of gus holds 1 GiB without a lease"
    check("processes outside are shown with their owner", code == 0 and lines == [way, none], "\n".join(lines))
    check("and nothing ends them", stray.poll() is None)
    stray.kill()
    stray.wait()
    cards[1].processes, cards[2].processes = [], []
    play()
    free_all()


def an_unseen_process(service):
    """A service in a pid namespace of its own sees no process of ours."""
    kill(service)
    # The shell there is the first process, and ends the service with itself.
    service = serve("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
    code, said = do("bo", "lease", "take", "--for", "1m")
    check("who has no process number here cannot wait", code == 3 and "has no number" in said, said)
    code, said = do("bo", "lease", "take", "--for", "1m", "--no-wait")
    check("but have cards for a time", code == 0, said)
    kill(service)


def main():
    os.makedirs("/etc/sconce")
    with open(POLICY, "w") as file:
        file.write(RULES)
    make_image()
    play()
    service = serve()
    began = time.monotonic()
    parts = [
        the_queue,
        runs_at_once,
        the_run_ends_with_its_lease,
        a_holder_killed,
        two_at_one_instant,
        asked_too_much,
        a_card_falls_off,
        outside,
        strangers,
        the_true_reason,
        a_policy_with_typing_errors,
    ]
    for part in parts:
        part()
    idle = start_idle()
    until("hana's run has its card", lambda: held("hana"))
    hostile(service)
    end_idle(idle)
    service = a_service_killed(service)
    service = a_policy_that_contradicts_itself(service)
    events = log()
    check("in all of the log no card was given twice", given_twice(events) == [], given_twice(events))
    print("the log:\n" + story(events))
    an_unseen_process(service)
    print(f"leases: {time.monotonic() - began:.0f} s")
    if checks.failed:
        print(f"leases: {len(checks.failed)} failed\nthe service said:\n" + open(f"{WORK}/service").read())
    return bool(checks.failed)


sys.exit(main())
