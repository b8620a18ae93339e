"""A model hub on the loopback interface that misbehaves on request: the owner in a repository's name says how.

Prints its port, serves until its standard input is closed. Standard library only.
  good      serves ranges            breaks     closes every connection after 60,000 bytes
  short     answers with shorter, honest ranges  long  sends more bytes than asked
  liar      another total in Content-Range       wrongrange  another beginning
  redirects to a second port that refuses tokens loop  redirects to itself
  ratelimit 429 and 503 first        norange    ignores ranges     norangebreaks  the same, and breaks off once
  damaged   one byte is wrong        evil       lists ../../x      token  wants "Bearer secret"
  html      no listing               nosizes    listing without sizes and hashes, HEAD has them
  dead      never answers a file     stops      refuses after two answers until GET /allow
GET /stats: {"bytes": body bytes of files, "requests": n}
"""
import hashlib
import http.server
import json
import sys
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "params.json": b'{"dim": 1}',
    "tekken.json": b'{"config": {}}',
    "consolidated.safetensors": bytes((i * 37 + (i >> 8) * 11 + (i >> 16)) & 255 for i in range(1000003)),
    "README.md": b"not needed",
}
lock = threading.Lock()
state = {"bytes": 0, "requests": 0, "seen": {}, "answers": 0, "allowed": False}


def blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def listing(owner):
    siblings = []
    for name, data in FILES.items():
        entry = {"rfilename": name}
        if owner != "nosizes":
            entry["size"] = len(data)
            entry["blobId"] = blob_id(data)
            if name.endswith(".safetensors"):
                entry["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 134}
        siblings.append(entry)
    if owner == "evil":
        siblings.append({"rfilename": "../../x", "size": 1, "blobId": blob_id(b"x")})
    return json.dumps({"id": owner + "/x", "sha": COMMIT, "siblings": siblings}).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    other_port = 0

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", headers=(), length=None):
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        name = self.path.split("/")[-1]
        data = FILES[name]
        etag = hashlib.sha256(data).hexdigest() if name.endswith(".safetensors") else blob_id(data)
        self.reply(302, headers=(("Location", "/elsewhere"), ("X-Linked-Size", str(len(data))), ("X-Linked-ETag", '"%s"' % etag)))

    def do_GET(self):
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts == ["stats"]:
            return self.reply(200, json.dumps({"bytes": state["bytes"], "requests": state["requests"]}).encode())
        if parts == ["allow"]:
            state["allowed"] = True
            return self.reply(200)
        if parts[:2] == ["api", "models"]:
            return self.api(parts[2])
        if parts[0] == "cdn":
            if self.headers.get("Authorization"):
                return self.reply(400, b"a token reached the second host")
            return self.file("good", parts[-1])
        return self.resolve(parts[0], parts[-1])

    def api(self, owner):
        if owner == "absent":
            return self.reply(404, b'{"error": "Repository not found"}')
        if owner == "html":
            return self.reply(200, b"<html>login</html>")
        if owner == "token" and self.headers.get("Authorization") != "Bearer secret":
            return self.reply(401, b'{"error": "gated"}')
        return self.reply(200, listing(owner))

    def resolve(self, owner, name):
        key = (owner, name, self.headers.get("Range"))
        with lock:
            state["requests"] += 1
            state["seen"][key] = state["seen"].get(key, 0) + 1
            count = state["seen"][key]
        if owner == "redirects":
            return self.reply(302, headers=(("Location", "http://127.0.0.1:%d/cdn/%s" % (self.other_port, name)),))
        if owner == "loop":
            return self.reply(302, headers=(("Location", self.path),))
        if owner == "ratelimit" and count <= 2:
            return self.reply(429 if count == 1 else 503, b"slow down", headers=(("Retry-After", "0"),))
        if owner == "token" and self.headers.get("Authorization") != "Bearer secret":
            return self.reply(403)
        if owner == "dead":
            self.close_connection = True
            return None
        if owner == "stops" and name.endswith(".safetensors"):
            with lock:
                state["answers"] += 1
                if state["answers"] > 2 and not state["allowed"]:
                    return self.reply(403)
        return self.file(owner, name, count)

    def file(self, owner, name, count=1):
        data = FILES[name]
        if owner == "damaged" and name.endswith(".safetensors"):
            data = data[:500000] + bytes([data[500000] ^ 1]) + data[500001:]
        spec = self.headers.get("Range")
        if spec is None or owner.startswith("norange"):
            body = data
            if owner == "norangebreaks" and count == 1 and len(data) > 600000:
                return self.cut(200, data, 600000)
            self.count(len(body))
            return self.reply(200, body)
        first, last = (int(x) for x in spec.split("=")[1].split("-"))
        body = data[first:last + 1]
        total = len(data) + (7 if owner == "liar" else 0)
        if owner == "short":
            body = body[:50000]
        if owner == "wrongrange":
            first += 1
        head = (("Content-Range", "bytes %d-%d/%d" % (first, first + len(body) - 1, total)),)
        if owner == "long":
            return self.reply(206, body + b"surplus", head)
        if owner == "breaks" and len(body) > 60000:
            return self.cut(206, body, 60000, head)
        self.count(len(body))
        return self.reply(206, body, head)

    def cut(self, status, body, keep, headers=()):
        self.count(keep)
        self.reply(status, body[:keep], headers, length=len(body))
        self.close_connection = True

    def count(self, n):
        with lock:
            state["bytes"] += n


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # clients that hang up are part of the tests


def main():
    servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    Handler.other_port = servers[1].server_address[1]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(servers[0].server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
