"""The command line: a module a command. Nothing heavy is imported before it is needed. May import everything."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from podnet.cli.parser import build_parser
from podnet.engine.launch import is_launched, note_failure
from podnet.errors import ConfigError, PodnetError, nearest
from podnet.processes import end_now, is_member


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `podnet` command; returns the exit code. Without arguments it takes those of the process."""
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None and is_member():
        end_now(code)
    return code


def _run(arguments: list[str]) -> int:
    # How long an OpenMP thread spins before it sleeps: as it comes, training beside another program is half as fast;
    # with no spinning at all, it is a third slower where nothing else runs (docs/performance.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        return _dispatch(arguments)
    except PodnetError as error:
        return _tell(error)
    except OSError as error:
        return _tell(PodnetError(f"{error.filename or 'a file'}: {error.strerror or error}."))
    except KeyboardInterrupt:
        how = "again" if arguments[:1] == ["learn"] else "with --resume"
        print(f"\nstopped; give the same command {how} to go on from the last checkpoint.", file=sys.stderr)
        return 130


def _tell(error: PodnetError) -> int:
    """One sentence for the user, or for the launcher of several processes, which tells it once; the exit code."""
    if is_launched():
        note_failure(error)
    else:
        print(f"error: {error}", file=sys.stderr)
    return 2


def _dispatch(arguments: list[str]) -> int:
    parser, commands = build_parser()
    known, unknown = parser.parse_known_args(arguments)
    if known.command is None:
        parser.print_help()
        return 0
    if known.command == "run":
        from podnet.cli.run import run_command

        return run_command(known, unknown, commands["run"], arguments)
    if unknown:
        options = [option for action in commands[known.command]._actions for option in action.option_strings]
        hint = nearest(unknown[0], options)
        raise ConfigError(f"'podnet {known.command}' does not take {unknown[0]}.{hint}")
    if known.command == "demo":
        from podnet.cli.demo import demo_command

        return demo_command(known.output, known.seed)
    if known.command == "reproduce":
        from podnet.cli.reproduce import reproduce_command

        return reproduce_command(known)
    if known.command in ("learn", "info", "forget", "export"):
        from podnet.cli import learn

        command: Callable[[argparse.Namespace], int] = getattr(learn, f"{known.command}_command")
        return command(known)
    if known.command in ("predict", "evaluate"):
        from podnet.cli.predict import evaluate_command, predict_command

        return predict_command(known) if known.command == "predict" else evaluate_command(known)
    if known.command == "bench":
        from podnet.cli.bench import bench_command

        return bench_command(known)
    if known.command == "studio":
        from podnet.cli.studio import studio_command

        return studio_command(known)
    if known.command in ("report", "compare"):
        from podnet.report.commands import compare_command, report_command

        return report_command(known.runs, known.output) if known.command == "report" else compare_command(known.runs)
    from podnet.cli.listing import datasets_command, methods_command

    return methods_command(known.name) if known.command == "methods" else datasets_command()
