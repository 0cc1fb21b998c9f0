"""`claimflow init`: a pipeline, sample answers, and files for an editor, git and CI."""

import json
import os
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from claimflow.flows import __version__
from claimflow.flows.cli.data_file import add_data_options, describe, faults_of_options
from claimflow.flows.cli.options import Commands, add_command
from claimflow.flows.cli.output import write_message
from claimflow.flows.errors import Fault, InputError

if TYPE_CHECKING:
    from claimflow.flows.runner.data_file import DataPipeline

_CONFIGS: Final = Path(__file__).parents[2] / "configs"
_DEMO: Final = _CONFIGS / "demo.jsonl"
_TEMPLATES: Final = _CONFIGS / "init"

_SAMPLES: Final = (
    *("demo-qafb-224", "demo-qafb-384", "demo-qafb-436", "demo-qafb-397"),
    "demo-mtrag-d5f0e7023ab90fe0240b7fc46cf00c26<::>1-gpt-4o",
)
"""Samples of the demo with short texts: good, mixed and poor answers."""

_SCHEMAS: Final = ".claimflow"

_IGNORED: Final = """\
# claimflow: the store with its copies, reports, and what belongs to this machine
evaluations.*duckdb*
reports/
.claimflow/*
!.claimflow/*.schema.json
"""

_CI_FILES: Final = {
    "github": ".github/workflows/evaluation.yml",
    "gitlab": ".gitlab-ci.yml",
}

_MOVE: Final = "move it away, or name another folder"

_GATED: Final = ("faithfulness", "factual_correctness")
"""Metrics for the first gates of a pipeline, where it has them."""


def add(commands: Commands) -> None:
    """Declare `init`."""
    parser = add_command(
        commands,
        "init",
        init,
        "write a pipeline and sample answers, or a pipeline for your data",
        example="evaluation --data answers.jsonl",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where to write (default: this folder)",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="evaluate this file instead of the sample answers"
    )
    add_data_options(parser)
    parser.add_argument(
        "--nightly", action="store_true", help="add schedules.yaml, for a run every night"
    )
    parser.add_argument(
        "--ci",
        choices=sorted(_CI_FILES),
        help="add gates, and a workflow that checks them and reports the results",
    )


def init(options: Namespace) -> int:
    """Write the files, none of which may exist, and print the next commands."""
    from claimflow.flows.pipeline.schedules import schedules_schema
    from claimflow.flows.pipeline.schema import json_schema

    folder: Path = options.folder
    judge = _judge(options.judge) if options.judge else None
    made = _made(options)
    files = {folder / "pipeline.yaml": _pipeline(options, made, judge)}
    if not options.data:
        files[folder / "answers.jsonl"] = _sample_answers()
        files[folder / "answers.license.md"] = _template("answers.license.md")
    files[folder / _SCHEMAS / "pipeline.schema.json"] = _json(json_schema())
    if options.nightly:
        files[folder / "schedules.yaml"] = _template("schedules.yml")
        files[folder / _SCHEMAS / "schedules.schema.json"] = _json(schedules_schema())
    if options.ci:
        root = _repository(folder)
        files[root / _CI_FILES[options.ci]] = _workflow(options.ci, folder, root, judge)
    answers = folder / "answers.jsonl"
    own = {answers: f"to evaluate it add --data {shlex.quote(str(answers))}, or {_MOVE}"}
    _write(files, folder / ".gitignore", own)
    if options.data:
        write_message(describe(options.data, made))
    print(f"written: {', '.join(map(str, [*files, folder / '.gitignore']))}")
    print("\n  ".join(["next:", *_next_commands(options, judge)]))
    return 0


class _Judge(NamedTuple):
    """The judge section of a pipeline, a comment on it, and what it needs.

    `variables` are the environment variables of its key; `missing` says what the environment lacks.
    """

    section: Mapping[str, Any]
    comment: str
    variables: tuple[str, ...]
    missing: str | None


def _judge(model: str) -> _Judge:
    """A judge by litellm's name. Raises `InputError` for a provider that litellm does not know."""
    from claimflow.flows.judge.budget import price_of
    from claimflow.flows.judge.provider import open_provider
    from claimflow.flows.judge.provider_errors import key_variables_of, missing_of
    from claimflow.flows.pipeline.model_settings import Judge

    endpoint = Judge(model=model)
    provider = open_provider(endpoint.provider)
    missing, variables = missing_of(endpoint, provider), key_variables_of(endpoint, provider)
    if not variables:
        raise InputError([Fault("--judge", f"{model} cannot be asked", str(missing))])
    price = price_of(endpoint)
    comment = (
        "The language model that decomposes and verifies, by litellm's name. Its key comes from\n"
        f"the environment: {' and '.join(variables)}.\n"
        "`claimflow doctor pipeline.yaml` tests it with three small requests, and\n"
        "`claimflow plan pipeline.yaml` says what a run would ask and cost.\n"
    )
    section: dict[str, Any] = {"model": model}
    if missing and "api_base" in missing:
        comment += "The address of your server: add api_base: http://127.0.0.1:8000/v1\n"
    if price is None:
        comment += (
            "Its price is not known: add price: {input: ..., output: ...}, in US dollars per\n"
            "million tokens, to see costs, and budget_usd to limit what a run may spend.\n"
        )
    else:
        comment += "price: US dollars per million tokens. budget_usd: the most that a run spends.\n"
        names = ("input", "cached_input", "output")
        section["price"] = {name: float(usd) for name, usd in zip(names, price, strict=True)}
        section["budget_usd"] = 1
    return _Judge(section, comment, variables, missing)


def _made(options: Namespace) -> "DataPipeline":
    """The pipeline for the data file, or for the demo that the sample answers are from."""
    from claimflow.flows.runner.data_file import data_pipeline

    data = options.data or str(_DEMO)
    with faults_of_options(Namespace(config=data)):
        return data_pipeline(
            data,
            base=Path.cwd(),
            metrics=options.metrics,
            rename=dict(options.rename),
            contexts_separator=options.contexts_separator,
            judge=options.judge,
            earlier_turns=options.earlier_turns or "history",
        )


def _pipeline(options: Namespace, made: "DataPipeline", judge: _Judge | None) -> str:
    """The pipeline file, with comments."""
    from claimflow.flows.runner.data_file import STORE, pipeline_text, relative_to

    config = {**relative_to(made.config, options.folder), "store": STORE}
    if not options.data:
        config |= {"name": "answers", "samples": {"path": "answers.jsonl"}}
    steps = config.pop("steps")
    if judge is not None:
        config["judge"] = judge.section
    if options.ci:
        gated = [metric for metric in _GATED if metric in steps] or made.metrics[:1]
        config["gates"] = {metric: {"no_worse_than": "main", "by": 0.05} for metric in gated}
    comments = {
        "name": (
            f"yaml-language-server: $schema={_SCHEMAS}/pipeline.schema.json\n"
            "Evaluates answers claim by claim: `claimflow run pipeline.yaml`. Paths are relative\n"
            "to this file. `claimflow schema` prints the schema by which an editor checks it."
        ),
        "samples": (
            "JSON Lines, JSON, CSV or Parquet: a file, a glob of files, or s3://. The fields are\n"
            "user_input, response, reference and retrieved_contexts; the names of ragas,\n"
            "DeepEval, continuous-eval and RAGChecker are known; rename: {COLUMN: FIELD} names\n"
            "others. All other columns are metadata."
        ),
        "store": "One DuckDB file for all rows and replies: nothing is computed or paid for twice.",
        "judge": "" if judge is None else judge.comment,
        "gates": (
            "A mean that is worse than that of the run tagged main ends a run with exit code 4,\n"
            "one that may be, or that cannot be compared yet, with 5. min and max are limits, too."
        ),
        "steps": "\n".join(_about_steps(made, judge)),
    }
    return pipeline_text({**config, "steps": steps}, comments=comments)


def _about_steps(made: "DataPipeline", judge: _Judge | None) -> Iterator[str]:
    if judge is None:
        yield "Without a judge, small models that claimflow carries decompose and verify. To let a"
        yield "language model do it, write judge: {model: openai/gpt-4o-mini}."
    yield from made.left_out_lines
    if made.more:
        yield f"more metrics for these samples: {', '.join(made.more)}"


def _sample_answers() -> str:
    lines = _DEMO.read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if json.loads(line)["id"] in _SAMPLES)


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _json(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _workflow(ci: str, folder: Path, root: Path, judge: _Judge | None) -> str:
    """A workflow file; the lines on a key are left out where none is needed."""
    text = _template(f"{ci}.yml")
    below = Path(os.path.relpath(folder, root)).as_posix()
    text = text.replace("FOLDER/", "" if below == "." else f"{below}/").replace("FOLDER", below)
    text = text.replace("claimflow==VERSION", _requirement())
    if judge is None:
        return re.sub(r"^.*\bKEY\b.*\n", "", text, flags=re.MULTILINE)
    # A mapping has an entry for each variable, and words have all of them.
    for entry in re.findall(r'\bKEY: "[^"]*"', text):
        entries = (re.sub(r"\bKEY\b", name, entry) for name in judge.variables)
        text = text.replace(entry, ", ".join(entries))
    return re.sub(r"\bKEY\b", " and ".join(judge.variables), text)


def _source() -> dict[str, Any]:
    """Where pip installed claimflow from, if not from an index: `url`, and more."""
    try:
        text = distribution("claimflow").read_text("direct_url.json")
    except PackageNotFoundError:  # It runs from a folder in PYTHONPATH.
        text = None
    found: dict[str, Any] = json.loads(text or "{}")
    return found


def _requirement() -> str:
    """What pip is to install in CI: this version of claimflow, from where it came here."""
    source = _source()
    url, revision = source.get("url", ""), source.get("vcs_info", {})
    if revision:
        url = f"{revision.get('vcs')}+{url}@{revision.get('commit_id')}"
    # Anything else would not be one word of the shell.
    if re.fullmatch(r"(?:git\+)?https://[\w./@~+-]+", url):
        return f"claimflow @ {url}"
    return f"claimflow=={__version__}"


def _repository(folder: Path) -> Path:
    """The root of the git repository that a folder is in, where CI looks for its file."""
    there = folder.absolute()
    found = next((one for one in (there, *there.parents) if (one / ".git").exists()), None)
    if found is None or found == there:
        return folder
    return Path(os.path.relpath(found))


def _write(files: Mapping[Path, str], ignore: Path, own: Mapping[Path, str]) -> None:
    """Write files that do not exist, and add to the .gitignore; all or none of them.

    Raises `InputError` with every file that exists with another content or cannot be written.
    `own` are hints for files that the user may have written.
    """
    missing = {path: text for path, text in files.items() if not _holds(path, text)}
    faults = [
        Fault(str(path), "exists already", own.get(path, _MOVE))
        for path in missing
        if os.path.lexists(path)
    ]
    if faults:
        raise InputError(faults)
    written: list[Path] = []
    try:
        for path, text in missing.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
        before = ignore.read_text("utf-8") if ignore.exists() else ""
        lines = before.splitlines()
        added = [line for line in _IGNORED.splitlines() if line not in lines]
        if added:
            end = "\n" if before and not before.endswith("\n") else ""
            ignore.write_text(before + end + "".join(f"{line}\n" for line in added), "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        for path in written:
            with suppress(OSError):
                path.unlink()
        place = Path(getattr(error, "filename", None) or ignore)
        what = f"cannot be written ({getattr(error, 'strerror', error)})"
        if isinstance(error, FileExistsError):
            # In place of a folder to make.
            link = place.is_symlink()
            what = f"is a link to {place.readlink()}, which is missing" if link else "is no folder"
        raise InputError([Fault(str(place), what, "name a folder that you can write to")]) from None


def _holds(path: Path, text: str) -> bool:
    """Whether a file holds this text already."""
    with suppress(OSError, UnicodeDecodeError):
        return path.is_file() and path.read_text("utf-8") == text
    return False


def _next_commands(options: Namespace, judge: _Judge | None) -> Iterator[str]:
    if judge is not None and judge.missing:
        yield judge.missing
    yield f"claimflow run {shlex.quote(str(options.folder / 'pipeline.yaml'))}"
    if options.ci and _source().get("url", "").startswith("file:"):
        yield (
            f"in {_CI_FILES[options.ci]} let pip install a claimflow that CI can reach: here it "
            "was installed from a file"
        )
    if options.nightly:
        yield f"claimflow serve {shlex.quote(str(options.folder / 'schedules.yaml'))}"
