"""What an editor's extension for remote work does over SSH, with a server of our own in place of its maker's.

    editor.py KEY KNOWN-HOSTS PORT FOLDER

It brings an archive, has a shell read a script from its standard input with a forward by SOCKS beside it, and the
script unpacks and starts a server that outlives the session and says its port. The server is reached through the
forward and through a forwarded socket, the connection breaks and is made anew, sessions share one connection,
and many begin at once. FOLDER is mounted where the server is unpacked: what is there is used again.
"""

import io
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time

from checks import stop

KEY, KNOWN, PORT, FOLDER = sys.argv[1:]
TO = "sconce@127.0.0.1"
COMMON = ["-F", "none", "-i", KEY, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={KNOWN}",
          "-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR", "-o", "ExitOnForwardFailure=yes"]
SSH = ["ssh", *COMMON, "-p", PORT]
PATIENCE_S = 60
AT_ONCE = 24
# It echoes lines with its process id before them, over TCP and over a socket.
SERVER = b'''#!/usr/bin/env python
import os, socketserver, sys, threading
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"%d " % os.getpid() + line)
class Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
class Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
tcp = Tcp(("127.0.0.1", 0), Echo)
threading.Thread(target=Unix(sys.argv[1], Echo).serve_forever, daemon=True).start()
print("listens on", tcp.server_address[1], flush=True)
tcp.serve_forever()
'''
SCRIPT = """
base=$HOME/.vscode-server; name=$base/bin/0123abcd
echo begins "$(uname -sm)"
mkdir -p "$name" && touch "$HOME/writable" || exit 1
if [ ! -x "$name/server" ]; then tar -xzf "$base/server.tgz" -C "$name" || exit 1; echo unpacked; fi
if kill -0 "$(cat "$base/.pid" 2>/dev/null)" 2>/dev/null; then echo found; else
  rm -f /tmp/editor.sock
  nohup "$name/server" /tmp/editor.sock >"$base/.log" 2>&1 </dev/null & echo $! >"$base/.pid"
fi
for _ in $(seq 200); do grep -q listens "$base/.log" && break; sleep 0.1; done
cat "$base/.log"
echo ends
"""


def archive():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        about = tarfile.TarInfo("server")
        about.size, about.mode = len(SERVER), 0o755
        tar.addfile(about, io.BytesIO(SERVER))
    return made.getvalue()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Session:
    """A shell that reads the script and stays, with a forward by SOCKS."""

    def __init__(self):
        self.socks = free_port()
        self.process = subprocess.Popen([*SSH, "-T", "-D", str(self.socks), TO, "bash"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(SCRIPT)
        self.process.stdin.flush()
        self.said = []
        for line in self.process.stdout:
            self.said.append(line.strip())
            if line == "ends\n":
                break
        port = [line for line in self.said if line.startswith("listens on")]
        if not port:
            stop(f"the script said {self.said}")
        self.port = int(port[0].split()[-1])

    def connect(self):
        """A connection to the server by way of SOCKS 5 (RFC 1928), without a login."""
        one = socket.create_connection(("127.0.0.1", self.socks), timeout=PATIENCE_S)
        one.sendall(b"\x05\x01\x00")
        if one.recv(2) != b"\x05\x00":
            stop("SOCKS is not spoken")
        one.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + self.port.to_bytes(2, "big"))
        if one.recv(10)[1:2] != b"\x00":
            stop("the port is not forwarded")
        return one

    def end(self):
        self.process.kill()
        self.process.wait()


def echoes(one, text):
    """The server's process id, where it says this again."""
    one.sendall(text.encode() + b"\n")
    said = one.makefile().readline().split(maxsplit=1)
    if said[1:] != [text + "\n"]:
        stop(f"the server said {said}")
    return int(said[0])


def all_at_once(what, command):
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(AT_ONCE)]
    said = [one.communicate(timeout=PATIENCE_S) for one in running]
    good = sum(one.returncode == 0 and out == "there\n" for one, (out, _) in zip(running, said))
    if good != AT_ONCE:
        stop(f"{what}: {good} of {AT_ONCE} came in: {[error for _, error in said if error][:3]}")


def until(what, done):
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            stop(f"still not: {what}")
        time.sleep(0.1)


def main(work):
    local, control = f"{work}/local", f"{work}/control"
    with open(f"{work}/server.tgz", "wb") as file:
        file.write(archive())
    subprocess.run(["scp", "-q", *COMMON, "-P", PORT, f"{work}/server.tgz", f"{TO}:.vscode-server/server.tgz"], check=True)
    first = Session()
    print(first.said)
    if first.said[0] != f"begins {os.uname().sysname} {os.uname().machine}" or "unpacked" not in first.said:
        stop(f"the script said {first.said}")
    kept = first.connect()
    server = echoes(kept, "over TCP")
    forward = subprocess.Popen([*SSH, "-N", "-L", f"{local}:/tmp/editor.sock", TO])
    until("a socket is forwarded", lambda: os.path.exists(local))
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(local)
        if echoes(one, "over a socket") != server:
            stop("another server is at the socket")
    forward.terminate()
    forward.wait()
    # The connection breaks; the server stays.
    first.end()
    kept.close()
    again = Session()
    if "found" not in again.said or "unpacked" in again.said:
        stop(f"after a broken connection the script said {again.said}")
    kept = again.connect()
    if echoes(kept, "again") != server:
        stop("the server was started anew")
    master = subprocess.Popen([*SSH, "-M", "-S", control, "-N", TO])
    until("there is a shared connection", lambda: os.path.exists(control))
    all_at_once("sessions of one connection", ["ssh", "-S", control, "-F", "none", "-o", "ControlMaster=no", "-o", "BatchMode=yes", TO, "echo there"])
    all_at_once("connections", [*SSH, TO, "echo there"])
    # As long as both are there, a second connection is what it was.
    if echoes(kept, "after all that") != server:
        stop("the server went away")
    master.terminate()
    master.wait()
    again.end()
    if not os.access(f"{FOLDER}/bin/0123abcd/server", os.X_OK):
        stop(f"nothing is kept in {FOLDER}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="editor.") as work:
        main(work)
