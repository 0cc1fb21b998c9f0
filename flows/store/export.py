"""Export the tables of a store as Parquet, to a folder or to object storage, and views of them."""

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import duckdb

from claimflow.flows import __version__
from claimflow.flows.errors import Fault, InputError, StoreFullError, one_of
from claimflow.flows.files import refuse_special
from claimflow.flows.object_storage import Address, Bucket, is_remote, parse_address
from claimflow.flows.store.arrow import quoted_name, quoted_text
from claimflow.flows.store.schema import prepare
from claimflow.flows.store.store import Store, now
from claimflow.stages.rows import row_kinds

MANIFEST: Final = "manifest.json"
"""Readers may look while tables are written. The manifest is removed before the first table and
written after the last: where it is, the tables that it lists are complete."""

_REPLIES: Final = "audit.replies"

_INTERNAL: Final = ("artifact_parts", "languages", "parts", "segments")
"""Tables of `audit` that only lead to rows in the store; the views have these rows."""

_TABLE_OF_RUN: Final = (
    "artifact_id IN (SELECT artifact_id FROM audit.run_steps WHERE run_id = $run)"
)

_OF_RUN: Final = {
    "audit.artifacts": _TABLE_OF_RUN,
    "audit.batch_calls": "batch_id IN (SELECT batch_id FROM audit.batches WHERE run_id = $run)",
    # Reused rows name calls of the runs that made them.
    "audit.calls": "run_id = $run OR call_id IN (SELECT call_id FROM claims WHERE run_id = $run) "
    "OR call_id IN (SELECT call_id FROM verdicts WHERE run_id = $run)",
}
"""The rows that belong to a run, for tables where `run_id` does not say so."""


class ExportedTable(NamedTuple):
    """A file or object with a table, where it is, and whether it replaced an older file."""

    table: str
    place: str
    rows: int
    replaced: bool


def export_tables(
    store: Store, folder: Path, *, tables: Sequence[str] = (), run_id: str | None = None
) -> Iterator[ExportedTable]:
    """Write tables (those named, or all but the ledger's replies) as `folder`/TABLE.parquet.

    With `run_id` only the rows that belong to that run. UUIDs and JSON become text. A file
    appears when it is complete. Raises `InputError` for unknown tables and for a folder that
    cannot be made, `StoreFullError` where a file cannot be written.
    """
    with store.reading() as connection:
        known = _table_names(connection)
        wanted = [name for name in known if name in tables or (not tables and name != _REPLIES)]
        unknown = [name for name in tables if name not in known]
        if unknown:
            raise InputError(
                Fault("export", f"there is no table {name!r}", one_of(name, known))
                for name in unknown
            )
        _make_folder(folder)
        for table in wanted:
            yield _write(connection, table, folder / f"{table}.parquet", run_id)


def _table_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The views of rows in the order of the row models, languages, then the tables of `audit`."""
    audit = connection.execute(
        "SELECT 'audit.' || table_name FROM duckdb_tables() WHERE schema_name = 'audit' "
        "AND NOT list_contains($internal, table_name) ORDER BY 1",
        {"internal": list(_INTERNAL)},
    ).fetchall()
    return [*(row.table for row in row_kinds()), "text_languages", *(name for (name,) in audit)]


def _write(
    connection: duckdb.DuckDBPyConnection, table: str, path: Path, run_id: str | None
) -> ExportedTable:
    columns = connection.execute(f"DESCRIBE {table}").fetchall()
    as_text = [
        f'"{name}"::VARCHAR AS "{name}"' if kind in ("UUID", "JSON") else f'"{name}"'
        for name, kind, *_ in columns
    ]
    query = f"SELECT {', '.join(as_text)} FROM {table}"
    values: dict[str, Any] = {}
    if run_id is not None and (table in _OF_RUN or "run_id" in {name for name, *_ in columns}):
        query += f" WHERE {_OF_RUN.get(table, 'run_id = $run')}"
        values["run"] = run_id
    if path.is_symlink() or not path.is_dir():
        refuse_special(path)
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    replaced = path.exists()
    try:
        copied = connection.execute(
            f"COPY ({query}) TO $path (FORMAT parquet, COMPRESSION zstd)",
            values | {"path": str(part)},
        ).fetchall()
        part.replace(path)
    except (duckdb.IOException, OSError) as error:
        raise StoreFullError(f"{path}: cannot be written ({error})") from error
    finally:
        part.unlink(missing_ok=True)
    return ExportedTable(table, str(path), int(copied[0][0]), replaced)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what, hint = f"cannot be made ({error.strerror})", "name a folder that you can write to"
        raise InputError([Fault(str(folder), what, hint)]) from error


def export_to(
    store: Store, place: str, *, tables: Sequence[str] = (), run_id: str | None = None
) -> Iterator[ExportedTable]:
    """As `export_tables`, for a folder or an address of object storage.

    A manifest is written last. Raises `InputError` where the bucket cannot be written.
    """
    if is_remote(place):
        yield from _put_tables(store, parse_address(place), tables, run_id)
        return
    folder = Path(place)
    manifest = folder / MANIFEST
    if folder.is_dir():
        manifest.unlink(missing_ok=True)
    written = []
    for one in export_tables(store, folder, tables=tables, run_id=run_id):
        written.append(one)
        yield one
    part = manifest.with_name(f".{MANIFEST}.part")
    try:
        part.write_bytes(_manifest(written, run_id))
        part.replace(manifest)
    except OSError as error:
        raise StoreFullError(f"{manifest}: cannot be written ({error})") from error


def publish_run(store: Store, run_id: str, place: str) -> str:
    """Write the tables of a run and a manifest to `place`/RUN_ID; returns that place."""
    own = str(parse_address(place).below(run_id) if is_remote(place) else Path(place) / run_id)
    for _ in export_to(store, own, run_id=run_id):
        pass
    return own


def published_views(place: str) -> str:
    """SQL that makes the views of a store, but of the published tables in folders like `place`.

    `place` is a folder that `publish_run` wrote, on a disk or in object storage, or a pattern of
    such folders, as DuckDB reads it. Folders without a manifest, whose tables are not complete,
    are left out when a view is read, and all but one of a run that is there twice. Columns have the
    types and comments that they have in a store. Raises `InputError` for an address that cannot be
    one, and where no folder on a disk has a manifest.
    """
    # The SQL may be read in another folder.
    folder = str(parse_address(place) if is_remote(place) else Path(place).absolute()).rstrip("/")
    with closing(duckdb.connect()) as connection:
        if not is_remote(place):
            _refuse_no_run(connection, place, folder)
        # An empty store says what the views are.
        prepare(connection, Path(":memory:"), now())
        tables = [name for name in _table_names(connection) if name != _REPLIES]
        derived = connection.execute(_DERIVED_VIEWS, {"exported": tables}).fetchall()
        commented = connection.execute(_COMMENTS).fetchall()
        lines = [f"INSTALL {_REMOTE}; LOAD {_REMOTE};"] if is_remote(place) else []
        lines += ["CREATE SCHEMA IF NOT EXISTS audit;", "CREATE SCHEMA IF NOT EXISTS latest;"]
        lines.append(f"CREATE OR REPLACE VIEW audit.published AS {_complete_folders(folder)};")
        lines += [_published_view(connection, table, folder) for table in tables]
    lines += [re.sub(r"^CREATE VIEW", "CREATE OR REPLACE VIEW", sql) for _, sql in derived]
    known = {*tables, *(name for name, _ in derived)}
    lines += [
        f"COMMENT ON {kind} {_sql_name(of)} IS {quoted_text(comment)};"
        for view, kind, of, comment in commented
        if view in known
    ]
    return "\n".join(lines) + "\n"


_REMOTE: Final = "httpfs"
"""DuckDB's extension for object storage."""

_SCHEMA: Final = "CASE schema_name WHEN 'main' THEN '' ELSE schema_name || '.' END"
"""SQL for what stands before the name of a view."""

# Views over others come after them, as they were made.
_DERIVED_VIEWS: Final = f"""
SELECT {_SCHEMA} || view_name AS name, sql
FROM duckdb_views()
WHERE NOT internal AND NOT list_contains($exported, name) AND name <> 'audit.artifact_segments'
ORDER BY view_oid
"""

_COMMENTS: Final = f"""
SELECT {_SCHEMA} || view_name AS view,
       'VIEW' AS kind, view AS of, comment
FROM duckdb_views() WHERE NOT internal AND comment IS NOT NULL
UNION ALL
SELECT {_SCHEMA} || table_name
         AS "table", 'COLUMN', "table" || '.' || column_name, comment
FROM duckdb_columns() WHERE NOT internal AND comment IS NOT NULL
ORDER BY ALL
"""


def _refuse_no_run(connection: duckdb.DuckDBPyConnection, place: str, folder: str) -> None:
    manifests = {"pattern": f"{folder}/{MANIFEST}"}
    if not connection.execute("FROM glob($pattern) LIMIT 1", manifests).fetchall():
        what = f"no run is published there: no folder has a {MANIFEST}"
        hint = "name the folder of a run, or all of them, as in 'nights/*'"
        raise InputError([Fault(f"--published {place}", what, hint)])


def _complete_folders(folder: str) -> str:
    """SQL for the folders that have their manifest, which is written last; one for each run."""
    # A copy of a manifest may be cut off.
    return (
        "SELECT parse_dirpath(filename) AS folder, manifest ->> '$.run_id' AS run_id, "
        "manifest ->> '$.claimflow' AS claimflow "
        "FROM (SELECT filename, TRY_CAST(content AS JSON) AS manifest "
        f"FROM read_text({quoted_text(f'{folder}/{MANIFEST}')})) "
        "WHERE manifest IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY coalesce(run_id, folder) ORDER BY folder) = 1"
    )


def _published_view(connection: duckdb.DuckDBPyConnection, table: str, folder: str) -> str:
    columns = ", ".join(
        f'"{name}"::{kind} AS "{name}"' if kind in ("UUID", "JSON") else f'"{name}"'
        for name, kind, *_ in connection.execute(f"DESCRIBE {table}").fetchall()
    )
    # Two runs of a store may have the same calls, tags and so on.
    once = "DISTINCT " if table.startswith("audit.") else ""
    read = quoted_text(f"{folder}/{table}.parquet")
    return (
        f"CREATE OR REPLACE VIEW {_sql_name(table)} AS SELECT {once}{columns} "
        # Names of folders such as run_id=5 are no columns.
        f"FROM read_parquet({read}, union_by_name = true, filename = true, "
        "hive_partitioning = false) "
        "WHERE parse_dirpath(filename) IN (SELECT folder FROM audit.published);"
    )


def _sql_name(path: str) -> str:
    """A table or column with its schema, as in `audit.runs`, as SQL."""
    return ".".join(map(quoted_name, path.split(".")))


def remove_published(run_id: str, place: str) -> int:
    """Remove the files that `publish_run` wrote to `place`/RUN_ID; returns their number.

    They are those that the manifest lists; it goes last, and then the folder if it is empty.
    Without the manifest of that run nothing is removed. Raises `InputError` where the bucket
    cannot be written, `OSError` where a file cannot be removed.
    """
    if is_remote(place):
        own = parse_address(place).below(run_id)
        bucket = Bucket(own)
        manifest = own.below(MANIFEST).key
        if manifest not in bucket.versions(own.key):
            return 0
        with TemporaryDirectory(prefix="claimflow-") as copied:
            bucket.fetch(manifest, Path(copied, MANIFEST))
            files = _listed_files(Path(copied, MANIFEST), run_id)
        for name in files:
            bucket.remove(own.below(name).key)
        return len(files)
    folder = Path(place) / run_id
    if folder.is_symlink() or not (folder / MANIFEST).is_file():
        return 0
    files = _listed_files(folder / MANIFEST, run_id)
    for name in files:
        (folder / name).unlink(missing_ok=True)
    if files and not any(folder.iterdir()):
        folder.rmdir()
    return len(files)


def _listed_files(manifest: Path, run_id: str) -> list[str]:
    """The files of a run by its manifest, which is the last; none if it is of something else."""
    try:
        content = json.loads(manifest.read_bytes())
        if content["run_id"] != run_id:
            return []
        tables = [f"{table}.parquet" for table in content["tables"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []
    # A manifest that was edited cannot name files elsewhere.
    return [*(name for name in tables if Path(name).name == name), MANIFEST]


def check_place(place: str) -> None:
    """Raise `InputError` where no run can be published, to be called before the run starts.

    The check removes an object that does not exist, which needs the same access as publishing.
    """
    if is_remote(place):
        at = parse_address(place)
        Bucket(at).remove(at.below(".claimflow").key)


def _put_tables(
    store: Store, at: Address, tables: Sequence[str], run_id: str | None
) -> Iterator[ExportedTable]:
    """Write tables to object storage, through local files: the store is not open meanwhile."""
    bucket = Bucket(at)
    manifest = at.below(MANIFEST).key
    with TemporaryDirectory(prefix="claimflow-") as folder:
        written = list(export_tables(store, Path(folder), tables=tables, run_id=run_id))
        content = _manifest(written, run_id)
        bucket.remove(manifest)
        for one in written:
            path = Path(one.place)
            target = at.below(path.name)
            bucket.put(target.key, path)
            yield one._replace(place=str(target))
        bucket.put(manifest, content)


def _manifest(written: Iterable[ExportedTable], run_id: str | None) -> bytes:
    """The manifest: each file with its rows and bytes."""
    tables = {
        one.table: {
            "file": Path(one.place).name,
            "rows": one.rows,
            "bytes": Path(one.place).stat().st_size,
        }
        for one in written
    }
    content = {"claimflow": __version__, "run_id": run_id, "tables": tables}
    return json.dumps(content, indent=2).encode()
