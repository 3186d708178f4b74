"""The page under load: clients that watch, look and try while runs grow and the model is taught, for some time.

python tests/campaign/load.py --clients 50 --seconds 1800

Beside them stand open pages that do nothing, and uploads that hang. Prints one line of JSON; ends with 1 if a request
failed, if a client saw something that was not so, or, in five minutes or more, if the server's memory grew.
"""

import argparse
import asyncio
import json
import os
import random
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx

sys.path.append(str(Path(__file__).parent.parent))
sys.path.append(str(Path(__file__).parent.parent.parent / "examples"))

from studio_at_scale import make_run

from coloured import photos_of
from podnet.cli import main as podnet
from studio import serving

KNOWN, TAUGHT = ("red", "green", "blue"), "grey"
LIVE = ("--classes", "8", "--epochs", "6", "--finetune-epochs", "1", "--threads", "1")
KEPT_RUNS = 4  # of those that were live
PATIENCE = 60  # seconds that an answer may take; nothing may take longer
QUIET = 120  # seconds for the last news to arrive
GROWTH_MB = 30  # of memory between the first third and the end
WARM_SECONDS = 300  # a shorter run ends before memory has settled, and is not judged by it


class Load:
    """What is shared by all clients: where things are, and what happened."""

    def __init__(self, server, folder, seconds, seed):
        self.server = server
        self.folder = folder
        self.seconds = seconds
        self.ends = time.monotonic() + seconds
        self.random = random.Random(seed)
        self.counts = Counter()
        self.errors = []
        self.waits = {}  # kind of request -> seconds
        self.memory = []

    @property
    def going(self):
        return time.monotonic() < self.ends

    def wrong(self, what):
        self.errors.append(str(what)[:300])

    async def ask(self, client, kind, method, path, expected=(200,), **options):
        """The JSON of an answer; photos are sent again to a server that is busy with others."""
        while True:
            began = time.monotonic()
            try:
                answer = await client.request(method, path, **options)
            except httpx.HTTPError as error:
                self.wrong(f"{kind}: {error!r}")
                return None
            self.waits.setdefault(kind, []).append(time.monotonic() - began)
            if answer.status_code == 503 and "retry-after" in answer.headers:
                self.counts["sent again"] += 1
                await asyncio.sleep(float(answer.headers["retry-after"]))
                continue
            if answer.status_code not in expected:
                self.wrong(f"{kind}: {answer.status_code} {answer.text}")
            return answer.json()


class Watcher:
    """One page: the list of runs as the events tell it, and the results of runs, line by line."""

    def __init__(self, load, client):
        self.load = load
        self.client = client
        self.runs = {}
        self.version = ""
        self.lines = {}  # run -> generation, lines

    async def begin(self):
        known = await self.load.ask(self.client, "runs", "GET", "/api/runs")
        self.version = known["version"]
        self.runs = {run["id"]: run for run in known["runs"]}

    async def follow(self):
        """The events, from the version that it has, until it is cancelled; a stream that breaks is an error."""
        async with self.client.stream("GET", "/api/events", params={"since": self.version}, timeout=None) as stream:
            name = ""
            async for line in stream.aiter_lines():
                kind, _, data = line.partition(": ")
                if kind == "event":
                    name = data
                elif kind == "data":
                    self.load.counts["events"] += 1
                    if name == "runs":
                        self._take(json.loads(data))
        self.load.wrong("a stream ended")

    def _take(self, news):
        if news["complete"]:
            self.runs.clear()
        for key in news["removed"]:
            self.runs.pop(key, None)
        self.runs |= {run["id"]: run for run in news["runs"]}

    async def look(self):
        """The new results of a run, appended to those from before."""
        key = self.load.random.choice(sorted(self.runs))
        generation, lines = self.lines.get(key, (None, []))
        path = f"/api/runs/{key}/results"
        found = await self.load.ask(self.client, "results", "GET", path, (200, 404), params={"start": len(lines)})
        if not found or "lines" not in found:
            self.lines.pop(key, None)  # deleted
        elif generation in (None, found["generation"]):
            self.lines[key] = (found["generation"], lines + found["lines"])
        else:
            del self.lines[key]  # begun anew

    async def compare(self):
        keys = self.load.random.sample(sorted(self.runs), min(3, len(self.runs)))
        await self.load.ask(self.client, "compare", "GET", "/api/compare", (200, 404), params={"run": keys})

    async def show_model(self):
        found = await self.load.ask(self.client, "model", "GET", "/api/model")
        names = {record["name"] for record in (found or {}).get("classes", [])}
        if found and names not in ({*KNOWN}, {*KNOWN, TAUGHT}):
            self.load.wrong(f"the model has the classes {sorted(names)}")

    async def try_photo(self):
        name = self.load.random.choice(KNOWN)
        photo = (self.load.folder / "photos" / name / "3.png").read_bytes()
        found = await self.load.ask(self.client, "predict", "POST", "/api/predict", content=photo)
        if found and found["ranked"][found["best"]][0]["name"] != name:
            self.load.wrong(f"a photo of {name} is {found['ranked']}")

    async def send_noise(self):
        await self.load.ask(self.client, "noise", "POST", "/api/predict", (422,), content=os.urandom(5000))


@asynccontextmanager
async def client_of(load):
    limits = httpx.Limits(max_connections=10)
    # Reading the certificates of the system takes so long that the server would hang up on the others.
    async with httpx.AsyncClient(
        base_url=load.server.base_url, timeout=PATIENCE, limits=limits, verify=False
    ) as client:
        yield client


async def watch(load):
    """One client, until the time is up; whether it then knows what the server knows."""
    async with client_of(load) as client:
        watcher = Watcher(load, client)
        await watcher.begin()
        following = asyncio.create_task(watcher.follow())
        acts = (watcher.look, watcher.look, watcher.look, watcher.compare, watcher.show_model, watcher.try_photo)
        while load.going:
            await asyncio.sleep(load.random.uniform(0.5, 3))
            await load.random.choice((*acts, watcher.send_noise))()
        consistent = await agrees(load, watcher)
        if following.done():
            load.wrong(f"a stream broke: {following.exception()!r}")
        following.cancel()
        with suppress(asyncio.CancelledError, httpx.HTTPError):
            await following
        return consistent


async def agrees(load, watcher):
    """Whether what it heard is what the list says now, and what it read is what the files hold."""
    deadline = time.monotonic() + QUIET
    while time.monotonic() < deadline:
        listed = await load.ask(watcher.client, "runs", "GET", "/api/runs")
        if {run["id"]: run for run in listed["runs"]} == watcher.runs:
            break
        await asyncio.sleep(1)
    else:
        load.wrong("a client did not hear of all changes")
        return False
    for key, (_, lines) in watcher.lines.items():
        if lines and key in watcher.runs:  # a run without results has no file yet
            file = load.folder / "runs" / watcher.runs[key]["name"] / "results.jsonl"
            if [json.loads(line) for line in file.read_text().splitlines()][: len(lines)] != lines:
                load.wrong(f"a client has other results of {file.parent.name} than its file")
                return False
    return True


async def teach(load):
    """Teach a class, look at the outcome, undo or remove it, again and again."""
    async with client_of(load) as client:
        while load.going:
            for photo in sorted((load.folder / "more" / TAUGHT).iterdir()):
                await load.ask(
                    client, "upload", "POST", "/api/draft", params={"name": TAUGHT}, content=photo.read_bytes()
                )
            await load.ask(client, "teach", "POST", "/api/teach", (202,), json={})
            outcome = {"state": "running"}
            while outcome["state"] == "running":
                await asyncio.sleep(0.5)
                outcome = await load.ask(client, "teaching", "GET", "/api/teach") or outcome
            if outcome["state"] != "done":
                load.wrong(f"a lesson: {outcome['message']}")
            load.counts["lessons"] += 1
            if load.counts["lessons"] % 2:
                await load.ask(client, "undo", "POST", "/api/model/undo")
            else:
                await load.ask(client, "accept", "POST", "/api/model/accept")
                await load.ask(client, "forget", "POST", "/api/model/forget", json={"name": TAUGHT})
                await load.ask(client, "accept", "POST", "/api/model/accept")


async def run_live(load):
    """One real run after the other; the oldest are deleted while they are shown."""
    folders = []
    while load.going:
        folders.append(load.folder / "runs" / f"live-{load.counts['live runs']}")
        command = ("-m", "podnet", "run", "--output", str(folders[-1]), *LIVE)
        quiet = {"stdout": asyncio.subprocess.DEVNULL}
        process = await asyncio.create_subprocess_exec(sys.executable, *command, **quiet)
        if await process.wait() != 0:
            load.wrong("a live run failed")
        load.counts["live runs"] += 1
        if len(folders) > KEPT_RUNS and load.going:  # later the clients compare what they saw with the files
            shutil.rmtree(folders.pop(0))


async def append_epochs(load):
    """A run of invented numbers that grows several times a second."""
    file = load.folder / "runs" / "invented-0" / "epochs.jsonl"
    line = file.read_text().splitlines()[-1]
    while load.going:
        with open(file, "a") as lines:
            lines.write(line + "\n")
        load.counts["epochs appended"] += 1
        await asyncio.sleep(0.3)


async def stand_by(load):
    """An open page that does nothing."""
    url = load.server.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        while load.going:
            with suppress(TimeoutError):
                if not await asyncio.wait_for(reader.read(65536), max(0.1, load.ends - time.monotonic())):
                    load.wrong("an open page was hung up on")
                    return
    finally:
        writer.close()


async def hang(load):
    """Uploads that never end, one after the other: the server ends each."""
    url = load.server.base_url
    head = b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\nx"
    while load.going:
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(head)
        with suppress(TimeoutError, ConnectionError):
            answer = await asyncio.wait_for(reader.read(), max(0.1, min(PATIENCE, load.ends - time.monotonic())))
            load.counts[f"hanging uploads ended with {answer[9:12].decode()}"] += 1
        writer.close()


def status_of(process, field):
    return int(re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1])


async def measure(load):
    while load.going:
        load.memory.append(status_of(load.server.server, "VmRSS") / 1024)
        await asyncio.sleep(min(5.0, load.seconds / 30))


async def everything(load, clients, pages, uploads):
    """How many clients were consistent at the end."""
    others = [teach(load), run_live(load), append_epochs(load), measure(load)]
    others += [stand_by(load) for _ in range(pages)] + [hang(load) for _ in range(uploads)]
    beside = [asyncio.create_task(each) for each in others]
    watching = [asyncio.create_task(watch(load)) for _ in range(clients)]
    done = await asyncio.gather(*watching, *beside, return_exceptions=True)
    for failure in done:
        if isinstance(failure, Exception):
            load.wrong(repr(failure))
    return sum(each is True for each in done[:clients])


@contextmanager
def prepared(seconds, seed):
    """A server with some runs and a model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number in range(20):
            make_run(folder / "runs" / f"invented-{number}", 5, seed=number, epochs=5, base=4)
        photos_of(folder / "photos", *KNOWN)
        photos_of(folder / "more", TAUGHT)
        with open(os.devnull, "w") as nowhere, redirected(nowhere):
            assert podnet(["learn", str(folder / "m.podnet"), str(folder / "photos"), "--train", "never"]) == 0
        with serving(folder / "runs", folder / "m.podnet") as server:
            server.get("/api/model").raise_for_status()  # torch is loaded before memory is measured
            yield Load(server, folder, seconds, seed)


@contextmanager
def redirected(file):
    """Standard output of this process: the last line is the report."""
    kept = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def report(load, known, consistent):
    memory = load.memory
    warm = max(memory[: len(memory) // 3 + 1])
    flat = memory[-1] <= warm + GROWTH_MB if known.seconds >= WARM_SECONDS else None
    return {
        "ok": not load.errors and consistent == known.clients and flat is not False,
        "clients": known.clients,
        "consistent": consistent,
        "seconds": known.seconds,
        "seed": known.seed,
        "open_pages": known.pages,
        "hanging_uploads": known.uploads,
        "requests": {kind: len(waits) for kind, waits in sorted(load.waits.items())},
        "errors": len(load.errors),
        "first_errors": load.errors[:5],
        "rss_mb": {"start": round(memory[0]), "first_third": round(warm), "end": round(memory[-1]), "flat": flat},
        "threads": status_of(load.server.server, "Threads"),
        "median_wait": {kind: round(statistics.median(waits), 3) for kind, waits in sorted(load.waits.items())},
        "worst_wait": {kind: round(max(waits), 3) for kind, waits in sorted(load.waits.items())},
        "counts": dict(sorted(load.counts.items())),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pages", type=int, default=1000, help="open pages that do nothing")
    parser.add_argument("--uploads", type=int, default=50, help="uploads that hang")
    parser.add_argument("--seed", type=int, default=0)
    known = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with prepared(known.seconds, known.seed) as load:
        consistent = asyncio.run(everything(load, known.clients, known.pages, known.uploads))
        found = report(load, known, consistent)
    print(json.dumps(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
