"""The page beyond one machine: the token, sessions, wrong tokens, TLS; over real sockets."""

import asyncio
import shutil
import subprocess

import httpx
import pytest
from studio_at_scale import make_run

from podnet.cli import main
from podnet.studio.access import IDLE_SECONDS, SESSION_SECONDS, TICKET_SECONDS, WRONG_SECONDS, WRONG_TOKENS, Access
from podnet.studio.events import Studio
from studio import runs_of, serving

EVERYWHERE = ("--host", "0.0.0.0")


class Clock:
    """A time that only moves when it is told to."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def token_of(client):
    return client.address.partition("token=")[2]


def here(client, **options):
    """A browser on this machine, without a cookie so far."""
    address = f"{client.base_url.scheme}://127.0.0.1:{client.base_url.port}"
    return httpx.Client(base_url=address, timeout=60, verify=False, **options)


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    make_run(folder / "one", 1, epochs=1, base=4)
    with serving(folder, None, *EVERYWHERE) as client:
        yield client


def test_another_address_needs_the_token(open_to_all):
    token = token_of(open_to_all)
    assert len(token) >= 32
    with here(open_to_all) as client:
        for path in ("/", "/api/runs", "/api/events", "/docs", "/static/app.js", "/api/openapi.json"):
            refused = client.get(path)
            assert refused.status_code == 401
            assert "script-src 'self'" in refused.headers["content-security-policy"]
        assert client.get("/api/runs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert client.get(f"/api/runs?token={token}").status_code == 401  # only the page is opened with it
        assert client.post(f"/api/teach?token={token}").status_code == 401
        assert client.post(f"/?token={token}").status_code == 401
        assert client.get("/api/runs", headers={"Host": "evil.example"}).status_code == 403


def test_the_token_is_exchanged_for_a_session(open_to_all):
    token = token_of(open_to_all)
    with here(open_to_all) as client:
        opened = client.get(f"/?token={token}&next=//evil.example")
        assert opened.status_code == 303
        assert opened.headers["location"] == "/"
        assert opened.headers["referrer-policy"] == "no-referrer"
        assert opened.headers["cache-control"] == "no-store"
        cookie = opened.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "secure" not in cookie  # the browser would not send it back over HTTP
        assert token.lower() not in cookie
        for path in ("/", "/api/runs", "/api/openapi.json", "/?again"):
            answer = client.get(path)
            assert answer.status_code == (303 if path == "/?again" else 200)
            assert token not in answer.text + str(answer.headers)
        with here(open_to_all, cookies={next(iter(client.cookies)): token}) as other:
            assert other.get("/api/runs").status_code == 401  # the token itself is no session


def test_wrong_tokens_are_limited(tmp_path):
    with serving(tmp_path, None, *EVERYWHERE) as server:
        token = token_of(server)
        with here(server) as client, here(server) as other:
            assert other.get(f"/?token={token}").status_code == 303
            for attempt in range(WRONG_TOKENS):
                wrong = {"Authorization": f"Bearer wrong-{attempt}", "X-Forwarded-For": f"10.0.0.{attempt}"}
                if attempt % 2:
                    refused = client.get("/api/runs", headers=wrong)
                else:
                    refused = client.get("/", params={"token": f"{token}x"})
                assert refused.status_code == 401
                assert refused.json()["detail"].startswith("wrong token; ")
            for right in (
                client.get(f"/?token={token}"),
                client.get("/", headers={"Authorization": f"Bearer {token}"}),
            ):
                assert right.status_code == 429  # or guessing would go on
                assert 0 < int(right.headers["retry-after"]) <= WRONG_SECONDS
                assert right.json()["detail"].startswith("too many wrong tokens from this address; try again in ")
            assert client.get("/api/runs").status_code == 401
            assert other.get("/api/runs").status_code == 200  # who is in stays in


def test_an_address_waits_and_others_do_not(clock):
    access = Access(clock)
    for _ in range(WRONG_TOKENS):
        assert access.seconds_to_wait("192.0.2.1") == 0
        assert not access.accepts("wrong", "192.0.2.1")
        clock.now += 1
    assert access.seconds_to_wait("192.0.2.1") == WRONG_SECONDS - WRONG_TOKENS
    assert access.seconds_to_wait("192.0.2.2") == 0
    clock.now += WRONG_SECONDS
    assert access.seconds_to_wait("192.0.2.1") == 0
    assert access.accepts(access.token, "192.0.2.1")
    assert not access.accepts("wrong", "192.0.2.1")
    assert access.seconds_to_wait("192.0.2.1") == 0  # counted anew
    for last in range(WRONG_TOKENS):
        access.accepts("wrong", f"2001:db8::{last:x}")
    assert access.seconds_to_wait("2001:db8::ffff") > 0  # one network, which has as many addresses as it likes
    assert access.seconds_to_wait("2001:db8:0:1::1") == 0


def test_a_session_ends_when_it_is_idle_and_after_a_day(clock):
    access = Access(clock)
    idle, busy = access.open_session(), access.open_session()
    opened = clock.now
    while clock.now - opened < SESSION_SECONDS - IDLE_SECONDS:
        clock.now += IDLE_SECONDS - 1
        assert access.session(busy) is not None
    assert access.session(idle) is None
    clock.now = opened + SESSION_SECONDS
    assert access.session(busy) is None
    assert access.session("") is None


def test_a_ticket_opens_one_session_soon(clock):
    access = Access(clock)
    assert not access.accepts("", "192.0.2.1")  # before there is one
    ticket = access.ticket()
    assert access.accepts(ticket, "192.0.2.1")
    assert not access.accepts(ticket, "192.0.2.1")
    ticket = access.ticket()
    clock.now += TICKET_SECONDS
    assert not access.accepts(ticket, "192.0.2.1")


def test_an_open_page_counts_as_use_and_its_stream_ends_with_the_session(clock, tmp_path):
    async def watch():
        access = Access(clock)
        session = access.session(access.open_session())
        studio = Studio(tmp_path, None)
        stream = studio.stream("", session)
        await anext(stream)
        for _ in range(9):
            clock.now += IDLE_SECONDS / 3
            studio.index.version += 1
            studio._fire()
            await anext(stream)
        assert studio.streams == 1
        clock.now += SESSION_SECONDS
        studio.index.version += 1
        studio._fire()
        assert [event async for event in stream] == []
        assert studio.streams == 0
        await studio.close()

    asyncio.run(watch())


SHORT = """
import podnet.studio.access as access, podnet.studio.events as events
access.SESSION_SECONDS, events.ALIVE_SECONDS = 3, 0.2
"""


def test_an_ended_session_is_told(tmp_path):
    with serving(tmp_path, None, *EVERYWHERE, first=SHORT) as server, here(server) as client:
        client.get(f"/?token={token_of(server)}")
        with client.stream("GET", "/api/events") as stream:
            assert stream.status_code == 200
            assert "".join(stream.iter_text())  # to its end
        refused = client.get("/api/runs")
        assert refused.status_code == 401
        assert "open the address that podnet studio printed" in refused.json()["detail"]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A folder with a certificate, its key, and files that do not work with it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    for name in ("one", "other"):
        made = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=studio.example")
        openssl("req", *made, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
    openssl("pkey", "-in", folder / "one.key", "-aes256", "-passout", "pass:x", "-out", folder / "locked.key")
    text = (folder / "one.key").read_text()
    (folder / "damaged.key").write_text(text[:300] + "\n-----END PRIVATE KEY-----\n")
    (folder / "notes.txt").write_text("no certificate")
    return folder


def test_encrypted_by_a_certificate(certificate, tmp_path):
    make_run(tmp_path / "one", 1, epochs=1, base=4)
    files = ("--certificate", str(certificate / "one.pem"), "--key", str(certificate / "one.key"))
    with serving(tmp_path, None, *EVERYWHERE, *files) as server:
        assert server.address.startswith("https://")
        with here(server) as client:
            opened = client.get(f"/?token={token_of(server)}")
            assert opened.status_code == 303
            assert opened.headers["set-cookie"].startswith("__Host-podnet-")
            assert "Secure" in opened.headers["set-cookie"]
            assert runs_of(client).keys() == {"one"}
            port = client.base_url.port
            # The browser compares a name with the certificate, so whatever it came by is right.
            assert client.get("/api/runs", headers={"Host": f"studio.example:{port}"}).status_code == 200
            origin = f"127.0.0.1:{port}"
            assert client.get("/api/runs", headers={"Origin": f"https://{origin}"}).status_code == 200
            assert client.get("/api/runs", headers={"Origin": f"http://{origin}"}).status_code == 403
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/")  # not encrypted
        with here(server) as client:
            assert client.get("/").status_code == 401


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"--certificate": "one.pem"}, "--certificate was given without --key; encryption needs both."),
        ({"--key": "one.key"}, "--key was given without --certificate; encryption needs both."),
        ({"--certificate": "none.pem", "--key": "one.key"}, "none.pem: No such file or directory."),
        ({"--certificate": "one.pem", "--key": "none.key"}, "none.key: No such file or directory."),
        ({"--certificate": ".", "--key": "one.key"}, "Is a directory."),
        ({"--certificate": "notes.txt", "--key": "one.key"}, "has no certificate; give a PEM file"),
        ({"--certificate": "one.pem", "--key": "notes.txt"}, "has no private key; give a PEM file"),
        ({"--certificate": "one.key", "--key": "one.pem"}, "has no certificate; give a PEM file"),
        ({"--certificate": "one.pem", "--key": "other.key"}, "the key does not belong to the certificate."),
        ({"--certificate": "one.pem", "--key": "locked.key"}, "the --key is protected by a password; give one without"),
        ({"--certificate": "one.pem", "--key": "damaged.key"}, "one of them is damaged"),
    ],
)
def test_files_that_cannot_encrypt_are_refused(certificate, capsys, given, expected):
    options = [word for option, name in given.items() for word in (option, str(certificate / name))]
    assert main(["studio", str(certificate), "--no-browser", *options]) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert len(said.splitlines()) == 1
