"""A real server of the page, for tests: started as a user would, spoken to over its socket."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx

START = "import sys; from podnet.cli import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def serving(folder, model=None, *options, first=""):
    """A client of a server for the runs below a folder and a model; `first` are statements to run before."""
    python = ["-c", f"{first}\n{START}"] if first else ["-m", "podnet"]
    command = [sys.executable, "-P", *python, "studio", str(folder), "--no-browser", "--port", "0", *options]
    command += ["--model", str(model)] if model else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=model and Path(model).parent)
    try:
        address = next(line.strip() for line in server.stdout if line.startswith("http"))
        with httpx.Client(base_url=address.partition("?")[0], timeout=60, verify=False) as client:
            client.server, client.address = server, address
            yield client
            assert server.poll() is None, "the server did not survive"
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


def runs_of(client):
    """Name -> summary."""
    return {run["name"]: run for run in client.get("/api/runs").json()["runs"]}


def events(client, since=""):
    """The server's events, each as (name, data)."""
    with client.stream("GET", "/api/events", params={"since": since}) as response:
        name = None
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))
