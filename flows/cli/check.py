"""The command `check`: mistakes in pipelines, schedules and prompts, found without a run."""

import shlex
from argparse import Namespace
from pathlib import Path

from claimflow.flows.cli.options import Commands, add_command
from claimflow.flows.cli.output import write_text
from claimflow.flows.errors import Fault, InputError
from claimflow.flows.report.formatting import format_count


def add(commands: Commands) -> None:
    """Declare `check`."""
    parser = add_command(
        commands,
        "check",
        check,
        "check pipelines, schedules and prompts; nothing is read or asked",
        example="configs/quickstart.yaml configs/prompts/verify.md",
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="YAML files, and prompts as .md files"
    )


def check(options: Namespace) -> int:
    """Print what each file is; raises `InputError` with the mistakes of all of them."""
    faults: list[Fault] = []
    for path in options.files:
        try:
            write_text(f"{path}: {_checked(path)}\n", None)
        except InputError as error:
            faults += error.faults
    if faults:
        # A pipeline may be given itself, and by its whole path in a schedules file.
        raise InputError(
            {(str(Path(one.place).absolute()), one.what): one for one in faults}.values()
        )
    return 0


def _checked(path: Path) -> str:
    """What a file is, and that it is right. Raises `InputError`."""
    from claimflow.flows.judge.prompt_check import check_prompt
    from claimflow.flows.pipeline.pipeline import build_pipeline
    from claimflow.flows.pipeline.schedules import read_schedules
    from claimflow.flows.pipeline.yaml_source import load_yaml
    from claimflow.flows.runner.data_file import is_data_file

    if path.suffix == ".md":
        prompt = check_prompt(path)
        warnings = f", {format_count(len(prompt.warnings), 'warning')}" if prompt.warnings else ""
        return f"OK, a prompt for {prompt.use}{warnings}"
    if is_data_file(str(path)):
        what = "is a data file, and `check` reads pipelines, schedules and prompts"
        hint = f"`claimflow plan {shlex.quote(str(path))}` checks it"
        raise InputError([Fault(str(path), what, hint)])
    source = load_yaml(path, what="a pipeline or schedules file")
    if isinstance(source.value, dict) and "deployments" in source.value:
        return f"OK, {format_count(len(read_schedules(path).scheduled), 'deployment')}"
    if isinstance(source.value, dict) and not {"steps", "samples"} & source.value.keys():
        return "not checked: neither a pipeline nor schedules"
    return f"OK, a pipeline of {format_count(len(build_pipeline(source).steps), 'step')}"
