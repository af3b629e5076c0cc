"""Raw Kafka requests for asking a broker doubtful questions.

It reads the message descriptions that the Kafka client library carries as data, so any request can be
written as a plain dict in any version, right or wrong, and any answer read back as a dict. It is no
client: one blocking socket, no retries, no checks.
"""

import json
import os
import re
import socket
import struct
import uuid
import zipfile

JAR = os.environ.get("KAFKA_CLIENTS_JAR") or os.path.expanduser(
    "~/.m2/repository/org/apache/kafka/kafka-clients/4.4.0/kafka-clients-4.4.0.jar"
)
ZERO = "00000000-0000-0000-0000-000000000000"


def _versions(text, top=32767):
    """'3+' → (3, top), '2-5' → (2, 5), '4' → (4, 4), 'none' → empty."""
    if text is None or text == "none":
        return (1, 0)
    if text.endswith("+"):
        return (int(text[:-1]), top)
    low, _, high = text.partition("-")
    return (int(low), int(high or low))


def _within(version, text):
    low, high = _versions(text)
    return low <= version <= high


def _capitalised(pairs):
    """A few descriptions write field names small; here all begin with a capital."""
    return {k: v[0].upper() + v[1:] if k == "name" and v else v for k, v in pairs}


def _load():
    schemas = {}
    with zipfile.ZipFile(JAR) as jar:
        for name in jar.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$|(?<=[,{\[])\s*//.*$", "", jar.read(name).decode(), flags=re.M)
                text = re.sub(r"\s//[^\"]*$", "", text, flags=re.M)
                schema = json.loads(text, object_pairs_hook=_capitalised)
                schemas[schema["name"]] = schema
    return schemas


SCHEMAS = _load()
KEYS = {s["name"][: -len("Request")]: s["apiKey"] for s in SCHEMAS.values() if s.get("type") == "request"}

class Writer:
    def __init__(self):
        self.out = bytearray()

    def pack(self, fmt, value):
        self.out += struct.pack(">" + fmt, value)

    def uvarint(self, value):
        while value >= 0x80:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise ValueError("answer too short")
        self.at += n
        return self.data[self.at - n : self.at]

    def unpack(self, fmt):
        return struct.unpack(">" + fmt, self.take(struct.calcsize(fmt)))[0]

    def uvarint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


NUMBERS = {
    "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d", "bool": "?",
}


class Codec:
    def __init__(self, schema):
        self.schema = schema
        self.common = {s["name"]: s["fields"] for s in schema.get("commonStructs", [])}

    def flexible(self, version):
        return _within(version, self.schema.get("flexibleVersions", "none"))

    # ---- write
    def encode(self, value, version):
        writer = Writer()
        self._write_struct(writer, self.schema["fields"], value, version)
        return bytes(writer.out)

    def _write_struct(self, w, fields, value, version):
        flexible = self.flexible(version)
        unknown = set(value) - {f["name"] for f in fields} - {"_tags"}
        if unknown:
            raise KeyError(f"no such field: {unknown}; known: {[f['name'] for f in fields]}")
        tags = {}
        for f in fields:
            if not _within(version, f["versions"]):
                continue
            if "tag" in f and _within(version, f.get("taggedVersions")):
                if f["name"] in value:
                    inner = Writer()
                    self._write(inner, f, f["type"], value[f["name"]], version)
                    tags[f["tag"]] = bytes(inner.out)
                continue
            given = value[f["name"]] if f["name"] in value else self._default(f, version)
            self._write(w, f, f["type"], given, version)
        if flexible:
            tags.update(value.get("_tags", {}))
            w.uvarint(len(tags))
            for tag, body in sorted(tags.items()):
                w.uvarint(tag)
                w.uvarint(len(body))
                w.out += body

    def _default(self, f, version):
        kind, default = f["type"], f.get("default")
        if default == "null":
            return None
        if kind.startswith("[]"):
            return []
        if kind == "bool":
            return default in (True, "true")
        if kind == "float64":
            return float(default or 0)
        if kind in NUMBERS:
            return int(str(default or 0), 0)
        if kind == "string":
            return default or ""
        if kind == "uuid":
            return ZERO
        if kind in ("bytes", "records"):
            return b""
        return {}

    def _write(self, w, f, kind, value, version):
        flexible = self.flexible(version)
        if kind in NUMBERS:
            w.pack(NUMBERS[kind], value)
        elif kind == "uuid":
            w.out += uuid.UUID(value).bytes
        elif kind in ("string", "bytes", "records") or kind.startswith("[]"):
            if kind == "string" and value is not None:
                value = value.encode()
            length = -1 if value is None else len(value)
            if flexible:
                w.uvarint(length + 1)
            else:
                w.pack("h" if kind == "string" else "i", length)
            if value is None:
                return
            if kind.startswith("[]"):
                for item in value:
                    self._write(w, f, kind[2:], item, version)
            else:
                w.out += value
        else:
            if kind == f["type"] and _within(version, f.get("nullableVersions")):
                w.pack("b", -1 if value is None else 1)
            if value is not None:
                self._write_struct(w, f.get("fields") or self.common[kind], value, version)

    # ---- read
    def decode(self, data, version):
        r = Reader(data)
        value = self._read_struct(r, self.schema["fields"], version)
        if r.at != len(data):
            value["_trailing"] = data[r.at :].hex()
        return value

    def _read_struct(self, r, fields, version):
        value, by_tag = {}, {}
        for f in fields:
            if not _within(version, f["versions"]):
                continue
            if "tag" in f and _within(version, f.get("taggedVersions")):
                by_tag[f["tag"]] = f
                continue
            value[f["name"]] = self._read(r, f, f["type"], version)
        if self.flexible(version):
            for _ in range(r.uvarint()):
                tag, size = r.uvarint(), r.uvarint()
                body = Reader(r.take(size))
                f = by_tag.get(tag)
                if f:
                    value[f["name"]] = self._read(body, f, f["type"], version)
                else:
                    value[f"_tag{tag}"] = body.data.hex()
        return value

    def _read(self, r, f, kind, version):
        if kind in NUMBERS:
            return r.unpack(NUMBERS[kind])
        if kind == "uuid":
            return str(uuid.UUID(bytes=r.take(16)))
        if kind in ("string", "bytes", "records") or kind.startswith("[]"):
            if self.flexible(version):
                length = r.uvarint() - 1
            else:
                length = r.unpack("h" if kind == "string" else "i")
            if length < 0:
                return None
            if kind.startswith("[]"):
                return [self._read(r, f, kind[2:], version) for _ in range(length)]
            data = r.take(length)
            return data.decode() if kind == "string" else data
        if kind == f["type"] and _within(version, f.get("nullableVersions")) and r.unpack("b") < 0:
            return None
        return self._read_struct(r, f.get("fields") or self.common[kind], version)


class Closed(Exception):
    """The broker closed the connection instead of answering."""


class Connection:
    def __init__(self, bootstrap, timeout=15):
        host, port = bootstrap.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=timeout)
        self.correlation = 0

    def frame(self, payload):
        self.sock.sendall(struct.pack(">i", len(payload)) + payload)

    def send(self, api, version, body, client_id="oracle", raw=None, extra=b""):
        """Sends one request; `raw` replaces the encoded body, `extra` follows it."""
        codec = Codec(SCHEMAS[api + "Request"])
        self.correlation += 1
        w = Writer()
        w.pack("h", KEYS[api])
        w.pack("h", version)
        w.pack("i", self.correlation)
        name = None if client_id is None else client_id.encode()
        w.pack("h", -1 if name is None else len(name))
        w.out += name or b""
        if codec.flexible(version):
            w.uvarint(0)
        self.frame(bytes(w.out) + (codec.encode(body, version) if raw is None else raw) + extra)

    def receive_raw(self):
        def take(n):
            data = b""
            while len(data) < n:
                try:
                    part = self.sock.recv(n - len(data))
                except ConnectionResetError:
                    raise Closed("reset") from None
                if not part:
                    raise Closed("closed by broker")
                data += part
            return data

        return take(struct.unpack(">i", take(4))[0])

    def receive(self, api, version):
        codec = Codec(SCHEMAS[api + "Response"])
        data = self.receive_raw()
        skip = 4
        if codec.flexible(version) and api != "ApiVersions":
            skip = 5
        return codec.decode(data[skip:], version)

    def ask(self, api, version, body=None, **kw):
        self.send(api, version, body or {}, **kw)
        return self.receive(api, version)

    def close(self):
        self.sock.close()


# ---- record batches

def _crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ 0x82F63B78 if n & 1 else n >> 1
        table.append(n)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(value):
    w = Writer()
    w.uvarint((value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1)
    return bytes(w.out)


def record(delta, key, value, ts_delta=0, headers=()):
    body = b"\0" + varint(ts_delta) + varint(delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(len(headers))
    for name, content in headers:
        body += varint(len(name)) + name
        body += varint(-1) if content is None else varint(len(content)) + content
    return varint(len(body)) + body


def batch(records=None, *, n=None, ts=0, max_ts=None, attributes=0, pid=-1, epoch=-1, seq=-1, magic=2, base=0,
          leader_epoch=-1, last_delta=None, count=None, crc=None, length=None, body=None):
    """One v2 batch; every field can be made wrong. `records` are (key, value) or ready bytes."""
    if n is not None:
        records = [(b"k%d" % i, b"v%d" % i) for i in range(n)]
    records = records or []
    encoded = [r if isinstance(r, bytes) else record(i, *r) for i, r in enumerate(records)]
    body = b"".join(encoded) if body is None else body
    count = len(encoded) if count is None else count
    last_delta = len(encoded) - 1 if last_delta is None else last_delta
    tail = struct.pack(">hiqqqhii", attributes, last_delta, ts, ts if max_ts is None else max_ts, pid, epoch, seq, count)
    tail += body
    checked = crc32c(tail) if crc is None else crc
    head = struct.pack(">ibI", leader_epoch, magic, checked)
    return struct.pack(">qi", base, len(head) + len(tail) if length is None else length) + head + tail
