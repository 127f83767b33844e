# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a model server: OpenAI chat completions over real HTTP, with faults to switch on.

It understands the questions of the checks by their text alone, as a model would, and answers them
rightly. A fault changes one thing. What is sent comes from here, not from the code under test.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "stand-in"
WORD_SECONDS = 0.0005
# Faults that come with the second piece of a stream.
BROKEN = ("broken SSE", "torn event", "error in stream", "stops in the middle")

Message = dict[str, Any]


class StandIn:
    """`with StandIn() as server:` listens on server.url. `fault` may change at any time."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.fault = ""
        self.key = ""
        self.requests: list[dict[str, Any]] = []
        self.most_at_once = 0
        self.meet = 0  # hold requests with tools until so many are here at once
        self.met = threading.Event()
        self.released = threading.Event()
        self.count = itertools.count()
        self.lock = threading.Lock()
        self._at_once = 0
        self._results: list[str] = []
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.stand_in = self
        self._scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()  # what is stalled
        self._http.shutdown()
        self._thread.join(10)
        self._http.server_close()  # waits for the handlers

    def enter(self, request: dict[str, Any]) -> None:
        with self.lock:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            if self.most_at_once >= self.meet:
                self.met.set()
        if "tools" in request:
            self.met.wait(30)

    def leave(self) -> None:
        with self.lock:
            self._at_once -= 1

    # ---- The model -----------------------------------------------------------------------------

    def message(self, request: dict[str, Any]) -> tuple[Message, str]:
        """What the model says, and its finish_reason."""
        messages = request["messages"]
        last = messages[-1]
        text = last["content"]
        if last["role"] == "tool":
            return self._read_out(json.loads(text)["reading"]), "stop"
        if asked := re.search(r"Call (\w+) for station (\S+) and sensor (\d+)\.", text):
            return self._tool_call(asked[1], asked[2], int(asked[3]))
        if asked := re.search(r"What is the pass phrase of vault (\d+)\?", text):
            found = re.search(rf"The pass phrase of vault {asked[1]} is (\S+)\.", text)
            assert found
            phrase = "I do not know." if self.fault == "lost needle" else f"It is **{found[1]}**."
            return self._answer(phrase), "length" if self.fault == "length" else "stop"
        words = self._words(text, min(request["max_tokens"], 100))
        return self._answer(words), "stop" if len(text) % 2 else "length"

    def _answer(self, text: str) -> Message:
        if self.fault == "no content":
            return {"role": "assistant", "content": None}
        return {"role": "assistant", "content": text}

    def _words(self, text: str, count: int) -> str:
        """A text that depends on all of the question, and on nothing else."""
        salt = str(next(self.count)) if self.fault == "nondeterministic" else ""
        salt += "other" if self.fault == "other model" else ""
        digest = hashlib.sha256((text + salt).encode()).hexdigest()
        return " ".join(digest[i % 60 : i % 60 + 5] for i in range(count))

    def _read_out(self, reading: str) -> Message:
        with self.lock:
            self._results.append(reading)
            if self.fault == "cross talk":
                reading = self._results[0]  # of the chat that came first
        if self.fault == "lost result":
            reading = "gone"
        return self._answer(f"The reading is {reading}.")

    def _tool_call(self, name: str, station: str, sensor: int) -> tuple[Message, str]:
        arguments: dict[str, Any] = {"sensor": sensor, "station": station}
        if self.fault == "wrong tool":
            name = "set_alarm"
        if self.fault == "wrong argument":
            arguments["sensor"] = str(sensor)
        text = json.dumps(arguments)
        if self.fault == "broken arguments":
            text = text[:-1]
        content = "" if self.fault == "content empty" else None  # both are legal
        if self.fault == "no tool call":
            return {"role": "assistant", "content": "I would rather not."}, "stop"
        function = {"name": name, "arguments": text}
        call_id = f"call-{next(self.count)}"
        call = {"id": call_id, "type": "function", "function": function}
        calls = [call, call] if self.fault == "two calls" else [call]
        finish = {"length": "length", "wrong finish": "stop"}.get(self.fault, "tool_calls")
        return {"role": "assistant", "content": content, "tool_calls": calls}, finish


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64
    stand_in: StandIn

    def handle_error(self, *_: object) -> None:
        """A client that has seen enough closes its connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    @property
    def stand_in(self) -> StandIn:
        return self.server.stand_in

    def do_GET(self) -> None:
        if self.stand_in.fault == "loading":
            self._send(503, b'{"error": {"message": "Loading model"}}')
        elif self.stand_in.fault == "no list":
            self._send(404, b"")
        else:
            self._send(200, json.dumps({"data": [{"id": MODEL}]}).encode())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.stand_in.enter(request)
        try:
            if self._authorised():
                time.sleep(0.002)
                self._complete(request)
        finally:
            self.stand_in.leave()

    def _authorised(self) -> bool:
        sent = self.headers["Authorization"]
        key = self.stand_in.key
        if not key or (sent == f"Bearer {key}" and self.stand_in.fault != "refused"):
            return True
        self._send(401, f'{{"error": "\x1b[31mnot {sent}"}}'.encode())
        return False

    def _send(self, status: int, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _complete(self, request: dict[str, Any]) -> None:
        fault = self.stand_in.fault
        before: dict[str, Callable[[], None]] = {
            "500": lambda: self._send(500, b'{"error": {"message": "CUDA error"}}'),
            "redirect": lambda: self._send(307, b""),
            "stall": lambda: self._stall(),
            "drip": lambda: self._drip(),
            "garbage": lambda: self._garbage(),
            "reset": lambda: self.connection.close(),
        }
        if fault in before:
            self.close_connection = True
            before[fault]()
        elif request["stream"]:
            self._stream(request)
        else:
            self._whole(request)

    # ---- Without a stream ----------------------------------------------------------------------

    def _whole(self, request: dict[str, Any]) -> None:
        message, finish = self.stand_in.message(request)
        choice = {"index": 0, "message": message, "finish_reason": finish}
        data: dict[str, Any] = {"choices": [choice], "usage": _usage(request, message)}
        fault = self.stand_in.fault
        if fault == "choices null":
            data["choices"] = None
        if fault == "too many tokens":
            data["usage"]["completion_tokens"] = request["max_tokens"] + 1
        if fault == "surrogate":
            message["content"] = "\ud800"
        raw = json.dumps(data).encode()
        if fault == "malformed JSON":
            raw = raw.replace(b'"choices"', b"choices")
        if fault == "deep JSON":
            raw = b"[" * 100_000
        if fault == "endless":
            self._endless(b" " * 65536)
        elif fault == "broken off":
            self.close_connection = True
            self._head({"Content-Length": str(len(raw))}, "application/json")
            self.wfile.write(raw[:-10])
        else:
            self._send(200, raw)

    def _head(self, headers: dict[str, str], media_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _endless(self, piece: bytes) -> None:
        self.close_connection = True
        self._head({}, "text/event-stream")
        while not self.stand_in.released.is_set():
            self.wfile.write(piece)

    def _stall(self) -> None:
        self.stand_in.released.wait(30)

    def _drip(self) -> None:
        """A byte now and then, each of them in good time."""
        self._head({}, "text/event-stream")
        while not self.stand_in.released.wait(0.05):
            self.wfile.write(b" ")

    def _garbage(self) -> None:
        self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    # ---- Streams -------------------------------------------------------------------------------

    def _stream(self, request: dict[str, Any]) -> None:
        fault = self.stand_in.fault
        message, finish = self.stand_in.message(request)
        if fault == "no stream":
            self._whole(request)
            return
        if fault == "endless":
            self._endless(_event(_chunk({"content": "word "})))
            return
        self._head({"Transfer-Encoding": "chunked"}, "text/event-stream")
        self._write(b": a comment\r\n\r\n")
        self._write(_event(_chunk({"role": "assistant", "content": None})))
        if fault == "slow start":
            time.sleep(0.2)
        pattern = r"(?s).+" if fault == "held back" else r"\S+\s*"
        for number, delta in enumerate(_deltas(message, pattern)):
            event = _event(_chunk(delta))
            if number == 1 and fault in BROKEN:
                event = self._broken(event)
                if not event:
                    return
            self._write(event)
            time.sleep(WORD_SECONDS * (10 if fault == "slow decode" else 1))
        if fault != "no finish":
            self._write(_event(_chunk({}, finish)))
        self._write(_event({"choices": [], "usage": _usage(request, message)}))
        if fault != "no DONE":
            self._write(b"data: [DONE]\n\n")
        self._write(b"")

    def _broken(self, event: bytes) -> bytes:
        """The event as the fault has it; empty: no more comes."""
        if self.stand_in.fault == "broken SSE":
            return event.replace(b"data: ", b"\n", 1)
        if self.stand_in.fault == "torn event":
            return event[: len(event) // 2] + b"\n\n"
        if self.stand_in.fault == "error in stream":
            return _event({"error": {"message": "engine is dead"}})
        self.close_connection = True
        return b""

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _deltas(message: Message, pattern: str) -> Iterator[dict[str, Any]]:
    for word in re.findall(pattern, message["content"] or ""):
        yield {"content": word}
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        head = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, **call, "function": head}]}
        for at in range(0, len(function["arguments"]), 7):
            part = {"arguments": function["arguments"][at : at + 7]}
            yield {"content": None, "tool_calls": [{"index": index, "function": part}]}


def _usage(request: dict[str, Any], message: Message) -> dict[str, int]:
    prompt = sum(len(str(m["content"]).split()) for m in request["messages"])
    return {"prompt_tokens": prompt, "completion_tokens": len(str(message["content"]).split())}
