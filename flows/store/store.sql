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
  status      VARCHAR NOT NULL,  -- running, done, measured (noise), failed, stopped, killed
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
  fingerprint UUID NOT NULL,     -- how it was made, of what
  recipe      UUID NOT NULL,     -- how it was made, whatever its inputs held
  inputs      JSON NOT NULL,     -- the artifacts it was made of: {input: artifact_id or {step: artifact_id}}
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

-- Every call of a language model or of an embedding model behind an endpoint.
CREATE TABLE IF NOT EXISTS audit.calls (
  call_id           UUID NOT NULL,
  run_id            VARCHAR NOT NULL,
  step              VARCHAR NOT NULL,
  judge             VARCHAR NOT NULL,  -- its name in the pipeline, or embedder
  model             VARCHAR NOT NULL,
  api_base          VARCHAR,
  request           UUID NOT NULL,     -- hash of all that was sent
  repeats           UUID,              -- the call whose reply this one shows to the model as wrong
  rung              VARCHAR,           -- how the form of the reply was asked for: schema, tool, object, text
  system            VARCHAR,           -- the system message; a hash where texts are redacted
  prompt            VARCHAR,           -- what was sent after it; likewise
  reply             VARCHAR,           -- the reply as it came; likewise
  outcome           VARCHAR NOT NULL,  -- ok, repaired, partial, or what kept it from being an answer
  error             VARCHAR,
  finish_reason     VARCHAR,
  prompt_tokens     BIGINT,            -- NULL where the endpoint did not say
  cached_tokens     BIGINT,            -- of those, read from the provider's cache
  completion_tokens BIGINT,
  cost              DECIMAL(18, 9),    -- US dollars; NULL where tokens or their price are unknown
  seconds           DOUBLE NOT NULL,   -- from the first attempt to the reply
  attempts          INTEGER NOT NULL,
  asked_at          TIMESTAMP NOT NULL,
  open              BOOLEAN NOT NULL   -- a wrong reply that the model has not been shown yet
);

-- Names that people give to runs; a name moves with its newest row.
CREATE TABLE IF NOT EXISTS audit.tags (
  tag       VARCHAR NOT NULL,
  run_id    VARCHAR NOT NULL,
  tagged_at TIMESTAMP NOT NULL
);

-- What people corrected by hand; nothing on file is overwritten by it. It stands for a sample
-- while the text that it is about stays as it was, until it is taken back.
CREATE TABLE IF NOT EXISTS audit.edits (
  edit_id   UUID NOT NULL,     -- one import, or one taking back
  kind      VARCHAR NOT NULL,  -- claims or verdicts
  pipeline  VARCHAR NOT NULL,
  step      VARCHAR NOT NULL,
  sample_id VARCHAR NOT NULL,
  field     VARCHAR NOT NULL,  -- of the sample: what the claims are of, or were held against
  text      UUID NOT NULL,     -- the key of what stood there
  rows      JSON NOT NULL,     -- claims: all of the sample from then on; verdicts: those that changed
  replaced  JSON NOT NULL,     -- what stood before
  who       VARCHAR NOT NULL,
  why       VARCHAR NOT NULL,
  edited_at TIMESTAMP NOT NULL,
  undoes    UUID               -- the edit that this one takes back
);

-- What became of each gate of a run.
CREATE TABLE IF NOT EXISTS audit.gates (
  run_id   VARCHAR NOT NULL,
  metric   VARCHAR NOT NULL,
  rule     VARCHAR NOT NULL,  -- in words, as in "min 0.8"
  baseline VARCHAR,           -- the run compared with; NULL where a gate needs none
  value    DOUBLE,            -- the mean, or the difference to the baseline
  low      DOUBLE,
  high     DOUBLE,
  line     DOUBLE NOT NULL,   -- what it was held against
  outcome  VARCHAR NOT NULL,  -- pass, fail, inconclusive
  reason   VARCHAR NOT NULL
);

-- What people said of what a run had, by the texts that they read: it outlives the run.
CREATE TABLE IF NOT EXISTS audit.labels (
  import_id   UUID NOT NULL,
  kind        VARCHAR NOT NULL,  -- verdicts, claims or samples
  subject     UUID NOT NULL,     -- the key of the texts that were read
  run_id      VARCHAR NOT NULL,  -- the run and step that the sheet was of
  step        VARCHAR NOT NULL,
  sample_id   VARCHAR NOT NULL,
  claim_id    UUID,
  claim       VARCHAR,
  against     VARCHAR,
  passage     BIGINT,
  metric      VARCHAR,           -- of samples: what was rated
  label       VARCHAR,           -- of verdicts and claims
  rating      DOUBLE,            -- of samples, 0 to 1
  annotator   VARCHAR NOT NULL,
  file        VARCHAR NOT NULL,
  draw        VARCHAR NOT NULL,  -- as in "random 100 of 480, seed 0"
  frame       UUID NOT NULL,     -- the key of all that could have been drawn
  probability DOUBLE NOT NULL,   -- with which this was
  labelled_at TIMESTAMP NOT NULL
);

-- What the judges of a run said of its canaries: pairs whose verdict is known.
CREATE TABLE IF NOT EXISTS audit.canaries (
  run_id    VARCHAR NOT NULL,
  pipeline  VARCHAR NOT NULL,
  step      VARCHAR NOT NULL,
  judge     UUID NOT NULL,       -- the key of the judge, its prompt and its settings
  canary    UUID NOT NULL,       -- the key of premise and claim
  claim     VARCHAR NOT NULL,
  label     VARCHAR NOT NULL,    -- what a person says
  verdict   VARCHAR,             -- what the judge says
  status    VARCHAR NOT NULL,    -- judged, failed
  reason    VARCHAR,
  call_id   UUID,
  anew      BOOLEAN NOT NULL,    -- asked again in this run although it had answered before
  asked_at  TIMESTAMP NOT NULL,  -- when the judge was asked last
  judged_at TIMESTAMP NOT NULL   -- when the run tried the judge
);

-- How well a judge agreed with people, and how its verdicts were made then.
CREATE TABLE IF NOT EXISTS audit.calibrations (
  calibration_id UUID NOT NULL,     -- the key of all below but the time
  run_id         VARCHAR NOT NULL,
  pipeline       VARCHAR NOT NULL,
  step           VARCHAR NOT NULL,
  stage          VARCHAR NOT NULL,
  version        INTEGER NOT NULL,
  settings       JSON NOT NULL,     -- with the text of the prompt
  tools          JSON NOT NULL,     -- with the model and its parameters
  labels         BIGINT NOT NULL,   -- how many it rests on
  figures        JSON NOT NULL,     -- as `claimflow calibrate --format json` has them
  calibrated_at  TIMESTAMP NOT NULL
);
