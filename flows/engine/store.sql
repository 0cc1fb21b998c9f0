-- What a store holds beside the rows of the stages, whose tables and views are made from
-- the row models. No primary keys: they cost two to five times on load, and every table
-- has one writer that knows what it writes.

CREATE SCHEMA IF NOT EXISTS audit;
CREATE SCHEMA IF NOT EXISTS stored;
CREATE SCHEMA IF NOT EXISTS latest;

CREATE TABLE IF NOT EXISTS audit.store (
  schema_version INTEGER NOT NULL,
  made_by        VARCHAR NOT NULL,
  made_at        TIMESTAMP NOT NULL
);

CREATE TABLE IF NOT EXISTS audit.runs (
  run_id      VARCHAR NOT NULL,
  pipeline    VARCHAR NOT NULL,
  config_path VARCHAR NOT NULL,
  config      VARCHAR NOT NULL,
  status      VARCHAR NOT NULL,  -- running, done, failed, stopped, killed
  reason      VARCHAR,
  started_at  TIMESTAMP NOT NULL,
  ended_at    TIMESTAMP,
  host        VARCHAR NOT NULL,
  process     BIGINT NOT NULL,
  made_by     VARCHAR NOT NULL
);

CREATE TABLE IF NOT EXISTS audit.artifacts (
  artifact_id UUID NOT NULL,
  run_id      VARCHAR NOT NULL,  -- the run that made it
  fingerprint UUID NOT NULL,     -- how it was made
  digest      UUID,              -- what is in it; NULL until complete
  kind        VARCHAR NOT NULL,  -- the table its rows are in
  stage       VARCHAR NOT NULL,
  version     INTEGER NOT NULL,
  settings    JSON NOT NULL,
  tools       JSON NOT NULL,
  shards      INTEGER NOT NULL,
  row_count   BIGINT NOT NULL,
  failures    BIGINT NOT NULL,   -- rows with status failed: such a table is never reused
  made_at     TIMESTAMP NOT NULL
);

CREATE TABLE IF NOT EXISTS audit.run_steps (
  run_id      VARCHAR NOT NULL,
  step        VARCHAR NOT NULL,
  position    INTEGER NOT NULL,
  artifact_id UUID NOT NULL,
  reused      BOOLEAN NOT NULL,
  seconds     DOUBLE NOT NULL,
  ended_at    TIMESTAMP NOT NULL
);

-- The ledger: what a model replied, by what it was asked.
CREATE TABLE IF NOT EXISTS audit.replies (
  key     UUID NOT NULL,
  tool    VARCHAR NOT NULL,
  reply   BLOB NOT NULL,
  made_at TIMESTAMP NOT NULL
);
