"""Has a kernel of a Jupyter server execute 6 * 7, by its REST API and a websocket, and prints what it prints.

    python services.py http://127.0.0.1:8888 FILE-WITH-THE-TOKEN

Runs in an environment with JupyterLab, whose packages bring the websocket. An argument would be in the
record of the run.
"""

import json
import sys
import urllib.request
import uuid

import websocket

server, file = sys.argv[1:]
with open(file) as text:
    token = text.read().strip()
login = {"Authorization": "token " + token}


def ask(path, method="GET", body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data=data, headers=login, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


kernel = ask("/api/kernels", "POST", {"name": "python3"})["id"]
address = server.replace("http://", "ws://") + f"/api/kernels/{kernel}/channels"
socket = websocket.create_connection(address, header=["Authorization: " + login["Authorization"]], timeout=90)
header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3", "username": "", "session": uuid.uuid4().hex}
content = {"code": "print(6 * 7)", "silent": False}
message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}
socket.send(json.dumps(message))
while True:
    answer = json.loads(socket.recv())
    if answer["msg_type"] == "stream":
        print(answer["content"]["text"], end="")
        break
    if answer["msg_type"] == "error":
        sys.exit(answer["content"]["evalue"])
socket.close()
ask(f"/api/kernels/{kernel}", "DELETE")
