"""A stdio server for tests; its first argument says how it behaves, the tools misbehave."""
import json, subprocess, sys, time

KIND = sys.argv[1]
NAMES = ["echo", "raw", "junk", "ask", "flood", "endless", "die", "wait", "cancelled", "progress", "grow", "fork"]
waiting, cancelled = [], 0


def send(**message):
    sys.stdout.write(json.dumps(dict(jsonrpc="2.0", **message), separators=(",", ":")) + "\n")
    sys.stdout.flush()


def say(id, text):
    send(id=id, result={"resultType": "complete", "content": [{"type": "text", "text": text}]})


def tool(message, line):
    id, name = message["id"], message["params"]["name"]
    if name == "junk":
        print("Server started!")
        print("[1,2]")
        send(id=9999, result={})
        send(id=str(id), result={})
        say(id, "after junk")
    elif name == "ask":
        send(id="q1", method="sampling/createMessage", params={})
        refused = sys.stdin.readline()
        send(id="q2", method="ping")
        pong = json.loads(sys.stdin.readline())
        say(id, refused + ("ping-ok" if pong == {"jsonrpc": "2.0", "id": "q2", "result": {}} else str(pong)))
    elif name == "flood":
        for n in range(200):
            send(id=10000 + n, result={})
    elif name == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    elif name == "die":
        sys.exit(7)
    elif name == "wait":
        waiting.append(id)
    elif name == "cancelled":
        say(id, "cancelled: %d" % cancelled)
    elif name == "progress":
        token = message["params"]["_meta"]["progressToken"]
        for other in (token + 1000, str(token)):
            send(method="notifications/progress", params={"progressToken": other, "progress": 1})
        print('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1.50}}' % token)
        say(id, "done")
    elif name == "grow":
        NAMES.append("grown")
        send(method="notifications/tools/list_changed")
        say(id, "grown")
    elif name == "fork":
        say(id, "pid %d" % subprocess.Popen(["sleep", "600"]).pid)
    else:
        say(id, line)


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "server/discover":
        if KIND == "exits":
            sys.exit(1)
        if KIND == "modern":
            send(id=id, result={"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        elif KIND != "silent":
            send(id=id, error={"code": -32600, "message": "not initialized"})
    elif method == "initialize":
        send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}})
    elif method == "tools/list":
        if KIND == "hangs":
            time.sleep(600)
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
        send(id=id, result={"tools": tools, **({"nextCursor": "again"} if KIND == "loops" else {})})
    elif method == "tools/call":
        tool(message, line.strip())
    elif method == "notifications/cancelled":
        cancelled += 1
        if message["params"]["requestId"] in waiting:
            say(message["params"]["requestId"], "too late")
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "unknown"})
