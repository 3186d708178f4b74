"""The command line: one module per command. Heavy imports happen only when needed. May import everything."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from podnet.engine.launch import is_launched, note_failure
from podnet.errors import ConfigError, NotAModelError, PodnetError, nearest, printable
from podnet.processes import end_now, is_member

MODULES = {  # for commands that share a module; every other command has one of its name
    "undo": "forget",
    "card": "info",
    "compare": "report",
    **dict.fromkeys(("methods", "datasets"), "listing"),
}
ORDER = {  # of the arguments, for commands that take more than a model
    **dict.fromkeys(("learn", "evaluate"), "MODEL PHOTOS"),
    "predict": "MODEL PHOTO",
    "forget": "MODEL CLASS",
}
GOING_ON = {  # after Ctrl-C
    "run": "; to continue from the last checkpoint, run the same command with --resume",
    "search": "; to continue from the last checkpoint, run the same command again",
    "reproduce": "; to continue from the last checkpoints, run the same command again",
    "learn": "; the model is unchanged. To continue from the last checkpoint, run the same command again",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `podnet` command; returns the exit code. By default uses the arguments of the process."""
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None and is_member():
        end_now(code)
    return code


def _run(arguments: list[str]) -> int:
    # How long an OpenMP thread spins before it sleeps: by default, training beside another program is half as fast;
    # with no spinning at all, it is a third slower where nothing else runs (docs/performance.md).
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        return _dispatch(arguments)
    except PodnetError as error:
        return _tell(error)
    except BrokenPipeError:  # whoever reads the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as if ended by SIGPIPE
    except OSError as error:
        return _tell(PodnetError(f"{error.filename or 'a file'}: {error.strerror or error}."))
    except KeyboardInterrupt:
        print(f"\nstopped{GOING_ON.get(arguments[0], '') if arguments else ''}.", file=sys.stderr)
        return 130


def _tell(error: PodnetError) -> int:
    """Report an error to the user, or to the launcher of several processes, which prints it once; the exit code."""
    if is_launched():
        note_failure(error)
    else:
        print(f"error: {error}", file=sys.stderr)
    return 2


def _dispatch(arguments: list[str]) -> int:
    if arguments == ["doctor"]:  # before other packages are imported: it tells which of them is broken
        from podnet.cli.doctor import doctor_command

        return doctor_command()
    from podnet.cli.parser import build_parser

    parser, commands = build_parser()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        hint = nearest(arguments[0], commands)
        raise ConfigError(f"podnet has no command '{printable(arguments[0])}'.{hint} See 'podnet --help'.")
    known, unknown = parser.parse_known_args(arguments, argparse.Namespace(arguments=arguments))
    if known.command is None:
        parser.print_help()
        return 0
    open_ended = known.command in ("run", "search")  # they also take hyper-parameters of the method
    if unknown and not open_ended:
        options = [option for action in commands[known.command]._actions for option in action.option_strings]
        hint = nearest(unknown[0], options)
        raise ConfigError(f"'podnet {known.command}' does not take {unknown[0]}.{hint}")
    module = import_module(f"podnet.cli.{MODULES.get(known.command, known.command)}")
    command: Callable[..., int] = getattr(module, f"{known.command}_command")
    try:
        return command(known, unknown, commands[known.command]) if open_ended else command(known)
    except NotAModelError as error:
        if known.command not in ORDER:
            raise
        order = f"the model comes first: podnet {known.command} {ORDER[known.command]}"
        raise PodnetError(f"{str(error).removesuffix('.')}; {order}.") from error
