"""The command `claimflow`, which is also `python -m claimflow`."""

import os
import sys


def main() -> int:
    """Run the command line; returns its exit code.

    Until the modules are imported Ctrl-C ends the process at once: nothing was done yet, and an
    exception could be lost in the middle of an import.
    """
    try:
        import signal
    except KeyboardInterrupt:
        _end()
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from claimflow.flows.process import collect_less_garbage

    # Before the imports, which make many objects.
    collect_less_garbage()
    from claimflow.flows.cli.main import main as run_command_line

    return run_command_line(ready=lambda: signal.signal(signal.SIGINT, interrupt))


def _end(*_: object) -> None:
    os.write(2, b"claimflow: stopped before anything was done\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
