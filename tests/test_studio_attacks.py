"""What a stranger may try on the page, over real sockets; after each attempt the server still answers."""

import io
import os
import re
import shutil
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from studio_at_scale import make_run

from podnet.studio.app import STATIC
from podnet.studio.guard import FIRST_SECONDS, LARGEST_BODY, is_loopback
from podnet.studio.uploads import MOST_UPLOADS
from studio import runs_of, serving

SECRET = "the key to everything"
PATHS = (
    "../secret.txt",
    "..%2Fsecret.txt",
    "..%252Fsecret.txt",
    "%2e%2e%2fsecret.txt",
    "....//secret.txt",
    "..\\secret.txt",
    "/etc/passwd",
    "%2Fetc%2Fpasswd",
    "file:///etc/passwd",
    "secret.txt%00.json",
    "runs/../../secret.txt",
    "<script>alert(1)</script>",
)
SCRIPT = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A server with a run and a model that is not there yet; a secret lies beside them."""
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "secret.txt").write_text(SECRET)
    make_run(folder / "runs" / "one", 2, epochs=1, base=4)
    with serving(folder / "runs", folder / "m.podnet") as client:
        client.folder = folder
        client.run = runs_of(client)["one"]["id"]
        yield client


@pytest.fixture(autouse=True)
def _still_answers(client):
    yield
    assert client.get("/api/runs").status_code == 200


def photo(size=32):
    drawn = io.BytesIO()
    noise = np.random.default_rng(size).integers(0, 255, (size, size, 3), dtype=np.uint8)
    Image.fromarray(noise).save(drawn, "PNG")
    return drawn.getvalue()


def raw(client, text, wait=True):
    """Bytes as they are to the server's socket; what it answers, with the body that it announces."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=60) as connection:
        connection.sendall(text)
        answer = b""
        while wait and (part := connection.recv(65536)):
            answer += part
            head, ended, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if ended and length and len(body) >= int(length[1]):
                break
        return answer


def test_no_parameter_leads_anywhere_else(client):
    """Every parameter of every route of the API, each with every path."""
    described = client.get("/api/openapi.json").json()["paths"]
    tried = 0
    for route, methods in described.items():
        for method, about in methods.items():
            if route == "/api/events":
                continue
            for parameter in about.get("parameters", []):
                for path in PATHS:
                    url = re.sub(r"\{\w+\}", client.run, route)
                    query = {}
                    if parameter["in"] == "path":
                        url = route.replace(f"{{{parameter['name']}}}", path)
                        url = re.sub(r"\{\w+\}", "0", url)
                    else:
                        query = {parameter["name"]: path}
                    answer = client.request(method.upper(), url, params=query, content=b"{}")
                    tried += 1
                    assert SECRET not in answer.text, (method, url)
                    assert "root:" not in answer.text, (method, url)
                    allowed = (200, 422) if route == "/api/draft" else (307, 404, 405, 422)
                    assert answer.status_code in allowed, (method, url, answer.text)
    assert tried > 100


def test_files_of_the_page_and_no_others(client):
    for prefix in (b"/static/", b"/vendor/swagger/", b"/vendor/", b"/", b"/api/"):
        for path in PATHS:
            answer = raw(client, b"GET " + prefix + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert SECRET.encode() not in answer
            assert b"root:" not in answer
            assert answer.split()[1] in (b"404", b"400", b"422"), (prefix, path, answer[:200])


@pytest.mark.parametrize(
    "host", ["[", "evil.example", "evil.example:8137", "localhost.evil.example", "169.254.1.1", ""]
)
def test_a_foreign_host_is_refused(client, host):
    answer = raw(client, f"GET /api/runs HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.split()[1] in (b"403", b"400")
    assert b"one" not in answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "http://["])
def test_a_foreign_origin_is_refused(client, origin):
    for method, path in (
        ("GET", "/api/runs"),
        ("POST", "/api/teach"),
        ("DELETE", "/api/draft"),
        ("OPTIONS", "/api/runs"),
    ):
        answer = client.request(method, path, headers={"Origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_what_a_browser_says_of_other_sites_is_believed(client):
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert client.get("/api/runs", headers=headers).status_code == 403
        assert client.get("/vendor/plotly.js", headers=headers).status_code == 403
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status_code == 200
    own = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.get("/api/runs", headers=own).status_code == 200


def test_every_answer_forbids_foreign_scripts(client):
    for path in ("/", "/api/runs", "/docs", "/static/app.js", "/nothing"):
        headers = client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "style-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "sha256" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_a_bomb_of_a_hundred_megapixels(client):
    """10,000 x 10,000 pixels in about ten thousand bytes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 10_000, 10_000, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(10_000 * (1 + 10_000 // 8)), 9)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    assert len(bomb) < 15_000
    answer = client.post("/api/draft", params={"name": "bomb"}, content=bomb)
    assert answer.status_code == 422
    assert "pixels" in answer.json()["detail"]
    assert client.get("/api/draft").json() == []


def test_two_gigabytes(client):
    announced = f"POST /api/draft?name=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2 * 10**9}\r\n\r\n"
    assert raw(client, announced.encode()).split()[1] == b"413"

    sent, part = 0, bytes(1_000_000)  # without a length, until the server has had enough
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=60) as connection:
        connection.sendall(b"POST /api/draft?name=a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while sent < 2 * 10**9:
                connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                sent += len(part)
        except OSError:
            pass
    assert sent < LARGEST_BODY + 100_000_000  # it hung up
    assert memory_of(client.server) < 1_500_000_000


def memory_of(process):
    """Bytes that it holds at most so far."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(peak[1]) * 1024


def test_fifty_uploads_at_once(client):
    photos = [photo(64 + i) for i in range(50)]
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda p: client.post("/api/draft", params={"name": "many"}, content=p), photos))
    assert {answer.status_code for answer in answers} == {200}
    [draft] = client.get("/api/draft").json()
    assert len(draft["photos"]) == 50
    client.delete("/api/draft")


def test_requests_that_break_off(client):
    head = b"POST /api/draft?name=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    for text in (
        b"GET",
        b"GET /api/runs HTTP/1.1\r\nHost: local",
        head,
        head + bytes(5000),
        b"\x00\xff" * 50,
        b"\r\n" * 9,
    ):
        raw(client, text, wait=False)
    assert client.post("/api/draft", params={"name": "cut"}, content=photo()[:100]).status_code == 422
    assert client.get("/api/draft").json() == []


HANGING = b"POST /api/draft?name=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx"


@contextmanager
def connections(client, text, count):
    """Several that have sent the same."""
    opened = [socket.create_connection((client.base_url.host, client.base_url.port), timeout=60) for _ in range(count)]
    try:
        for connection in opened:
            connection.sendall(text)
        yield opened
    finally:
        for connection in opened:
            connection.close()


@pytest.mark.parametrize("count", [8, MOST_UPLOADS + 20])
def test_uploads_that_hang_do_not_keep_others_waiting(client, count):
    """More than are decoded at a time, and more than may arrive at a time."""
    with connections(client, HANGING, count):
        assert client.get("/api/runs").status_code == 200
        answer = client.post("/api/draft", params={"name": "beside"}, content=photo())
        while answer.status_code == 503:  # until one that hangs is old enough to make room
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["detail"] == "too many photos at once; send this one again."
            time.sleep(1)
            answer = client.post("/api/draft", params={"name": "beside"}, content=photo())
        assert answer.status_code == 200
        assert answer.elapsed.total_seconds() < FIRST_SECONDS  # it did not wait until they were ended
    client.delete("/api/draft")


IMPATIENT = """
import podnet.studio.connection as connection, podnet.studio.guard as guard
connection.HEAD_SECONDS = guard.FIRST_SECONDS = connection.READ_SECONDS = 0.5
"""


def test_who_is_too_slow_is_hung_up_on(tmp_path):
    """In the head, in the body of a photo or of JSON, after an answer, or by never reading one; others are answered."""
    kept = b"Host: localhost\r\n"
    with serving(tmp_path, tmp_path / "m.podnet", first=IMPATIENT) as client:
        for text in (b"", b"GET /api/runs HTTP/1.1\r\nHost: loc"):
            assert raw(client, text) == b""
        before = sockets_of(client.server)
        for path in (b"/api/draft?name=a", b"/api/teach", b"/api/predict"):
            begun = b"POST " + path + b" HTTP/1.1\r\n" + kept + b"Content-Length: 1000\r\n\r\nx"
            with connections(client, begun, 1) as [connection]:
                assert read_until(connection, b"the request comes too slowly").split()[1] == b"408"
        never = b"GET /vendor/plotly.js HTTP/1.1\r\n" + kept + b"\r\n"
        after = b"GET /api/runs HTTP/1.1\r\n" + kept + b"Content-Length: 9\r\n\r\n"
        stream = b"GET /api/events HTTP/1.1\r\n" + kept + b"Content-Length: 9\r\n\r\n"
        with connections(client, never, 3), connections(client, after, 3), connections(client, stream, 3):
            deadline = time.monotonic() + 60
            while sockets_of(client.server) > before:  # it has closed its ends; ours are open
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert client.get("/api/runs").status_code == 200


def sockets_of(process):
    """How many it has open."""
    found = [os.readlink(file) for file in Path(f"/proc/{process.pid}/fd").iterdir() if file.is_symlink()]
    return sum(name.startswith("socket:") for name in found)


def test_many_open_pages_cost_no_thread_and_stop_nobody(tmp_path):
    """More than the system allows files at first."""
    few = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, r.getrlimit(r.RLIMIT_NOFILE)[1]))"
    make_run(tmp_path / "one", 1, epochs=1, base=4)
    with serving(tmp_path, first=few) as client:
        client.get("/api/runs")
        with connections(client, b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n", 300) as opened:
            for connection in opened:
                read_until(connection, b"event: runs")
            assert client.get("/api/runs").status_code == 200
            threads = re.search(r"Threads:\s+(\d+)", Path(f"/proc/{client.server.pid}/status").read_text())
            assert int(threads[1]) < 60  # those that answer requests, and those of numerical libraries
            make_run(tmp_path / "two", 1, epochs=1, base=4)
            for connection in opened:
                read_until(connection, b'"two"')


def read_until(connection, wanted):
    said = b""
    while wanted not in said:
        part = connection.recv(65536)
        assert part, said
        said += part
    return said


def test_an_unknown_run_and_one_that_is_deleted_while_shown(client):
    for view in ("", "/results", "/epochs", "/classes"):
        assert client.get(f"/api/runs/000000000000{view}").status_code == 404
    make_run(client.folder / "runs" / "short", 1, epochs=1, base=4)
    deadline = time.monotonic() + 120
    while "short" not in runs_of(client):
        assert time.monotonic() < deadline, "the page does not see the run"
        time.sleep(0.1)
    key = runs_of(client)["short"]["id"]
    assert client.get(f"/api/runs/{key}/classes").status_code == 200
    shutil.rmtree(client.folder / "runs" / "short")
    for view in ("", "/results", "/epochs", "/classes"):
        answer = client.get(f"/api/runs/{key}{view}")
        assert answer.status_code == 404
        assert "was deleted" in answer.json()["detail"]
    assert client.get("/api/compare", params={"run": key}).status_code == 404


def test_bodies_that_are_nonsense(client):
    for body in (b"", b"{", b"[]", b'{"epochs": -1}', b'{"epochs": "many"}', b'{"epochs": 1e99}', b"\xff" * 100):
        assert client.post("/api/teach", content=body).status_code == 422
    for name in ("\x00", "a\nb", "x" * 5000):
        assert client.post("/api/draft", params={"name": name}, content=photo()).status_code == 422


def test_names_are_only_ever_text(client):
    """A script for a name comes back as it is, in JSON; what the page makes of it is seen in the browser's tests."""
    assert client.post("/api/draft", params={"name": SCRIPT}, content=photo()).json()["name"] == SCRIPT
    answer = client.get("/api/draft")
    assert answer.headers["content-type"] == "application/json"
    client.delete("/api/draft")


def test_the_page_writes_no_markup():
    """No script parses text as markup, program or style; no page of ours holds scripts or styles in its text."""
    scripts = list(STATIC.glob("*.js"))
    assert "dom.js" in {file.name for file in scripts}
    for file in scripts:
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
            "cssText",
        ):
            assert word not in file.read_text(), (file.name, word)
    for file in STATIC.glob("*.html"):
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]* src=)", file.read_text()), file.name


def test_which_addresses_are_only_here():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.1", "example.org", "")] == [False] * 5
