-- The tables of a store, except those of rows, which are made from the row models. No primary
-- keys: they make inserts two to five times slower, and each table is written in one place.

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
  made_by     VARCHAR NOT NULL,
  sample_count      BIGINT,  -- its samples; this and what follows is NULL before schema version 6
  samples_available BIGINT,  -- the samples of the files that the pipeline names
  step_count        BIGINT,  -- its steps, the reading of samples included
  steps_available   BIGINT,  -- the steps of the pipeline
  selection         VARCHAR  -- the options that left some out; NULL for a run of all
);

-- The samples that the input of a pipeline held when a run with `since: last_run` was done. Those
-- that the files no longer hold are forgotten.
CREATE TABLE IF NOT EXISTS audit.seen_samples (
  pipeline VARCHAR NOT NULL,
  key      UUID NOT NULL,        -- hash of the sample's id and texts
  run_id   VARCHAR NOT NULL      -- the run that saw it first
);

CREATE TABLE IF NOT EXISTS audit.artifacts (
  artifact_id UUID NOT NULL,
  run_id      VARCHAR NOT NULL,  -- the run that made this table
  fingerprint UUID NOT NULL,     -- hash of how it was made, inputs included
  recipe      UUID NOT NULL,     -- hash of how it was made, without its inputs
  inputs      JSON NOT NULL,     -- its input artifacts: {input: artifact_id or {step: artifact_id}}
  digest      UUID,              -- hash of its rows; NULL until the table is complete
  kind        VARCHAR NOT NULL,  -- the table that holds its rows
  stage       VARCHAR NOT NULL,
  version     INTEGER NOT NULL,
  settings    JSON NOT NULL,
  tools       JSON NOT NULL,
  shards      INTEGER NOT NULL,
  row_count   BIGINT NOT NULL,
  failures    BIGINT NOT NULL,   -- rows with status failed; a table with failures is never reused
  made_at     TIMESTAMP NOT NULL,
  plugin      JSON               -- of a stage of another package: source, metrics; else NULL
);

-- A segment is the rows of one sample in one artifact, or in many that have the same rows of it. The
-- tables of the schema stored hold the rows.
CREATE TABLE IF NOT EXISTS audit.segments (
  kind    VARCHAR NOT NULL,      -- the table that holds its rows
  segment BIGINT NOT NULL,       -- its number in that table
  digest  UUID                   -- hash of all columns of its rows; NULL where it has none
);

-- The parts of artifacts: each a list of segments, which artifacts of several kinds may have. A row
-- is a range of segments whose numbers, and whose places in the part, follow each other.
CREATE TABLE IF NOT EXISTS audit.parts (
  part    BIGINT NOT NULL,
  place   BIGINT NOT NULL,       -- of the first segment of the range, from 0
  segment BIGINT NOT NULL,       -- the number of the first one
  length  BIGINT NOT NULL        -- how many segments
);

CREATE TABLE IF NOT EXISTS audit.artifact_parts (
  artifact_id UUID NOT NULL,
  kind        VARCHAR NOT NULL,  -- as in audit.artifacts
  shard       INTEGER NOT NULL,  -- the place of the part in the artifact, from 0
  part        BIGINT NOT NULL,
  digest      UUID NOT NULL      -- hash of the list of segments
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

-- The ledger: replies of models, by the hash of the request. zstd compresses the texts of thousands of
-- calls together, and so what their prompts share once; DuckDB would take another method by itself,
-- which takes two to three times the space.
CREATE TABLE IF NOT EXISTS audit.replies (
  key     UUID NOT NULL,
  tool    VARCHAR NOT NULL,
  reply   BLOB NOT NULL USING COMPRESSION zstd,
  made_at TIMESTAMP NOT NULL
);

-- Every call of a language model, or of an embedding model behind an endpoint.
CREATE TABLE IF NOT EXISTS audit.calls (
  call_id           UUID NOT NULL,
  run_id            VARCHAR NOT NULL,
  step              VARCHAR NOT NULL,
  judge             VARCHAR NOT NULL,  -- its name in the pipeline, or "embedder"
  model             VARCHAR NOT NULL,
  api_base          VARCHAR,
  request           UUID NOT NULL,     -- hash of the whole request
  repeats           UUID,              -- the call whose wrong reply this call shows to the model
  rung              VARCHAR,           -- the reply format that was requested: schema, tool, object, text
  system            VARCHAR USING COMPRESSION zstd,  -- the system message, or its hash where texts are redacted
  prompt            VARCHAR USING COMPRESSION zstd,  -- the prompt, or its hash
  reply             VARCHAR USING COMPRESSION zstd,  -- the reply as received, or its hash
  outcome           VARCHAR NOT NULL,  -- ok, repaired, partial, or the kind of failure
  error             VARCHAR,
  finish_reason     VARCHAR,
  prompt_tokens     BIGINT,            -- NULL where the endpoint did not report it
  cached_tokens     BIGINT,            -- those of prompt_tokens that came from the provider's cache
  completion_tokens BIGINT,
  cost              DECIMAL(18, 9),    -- US dollars; NULL where tokens or prices are unknown
  seconds           DOUBLE NOT NULL,   -- from the first attempt to the reply
  attempts          INTEGER NOT NULL,
  asked_at          TIMESTAMP NOT NULL,
  open              BOOLEAN NOT NULL   -- whether its wrong reply is still to be shown to the model
);

-- Batches of calls at half the price, which a provider answers within a day. A row is written before
-- the batch is submitted, under an id that the provider stores with it.
CREATE TABLE IF NOT EXISTS audit.batches (
  batch_id       UUID NOT NULL,
  run_id         VARCHAR NOT NULL,  -- the run that submitted it
  judge          VARCHAR NOT NULL,
  model          VARCHAR NOT NULL,
  api_base       VARCHAR,
  provider_batch VARCHAR,           -- the provider's id; NULL until it is known to be submitted
  submitted_at   TIMESTAMP NOT NULL,
  ended_at       TIMESTAMP,         -- when all its replies were stored
  message        VARCHAR,           -- why the provider did not do it, or not as a whole
  fresh_since    TIMESTAMP          -- replies from before were not used; NULL: all were
);

-- The calls of each batch. One without a row in audit.calls is open.
CREATE TABLE IF NOT EXISTS audit.batch_calls (
  batch_id UUID NOT NULL,
  call_id  UUID NOT NULL,
  rung     VARCHAR NOT NULL,
  keys     UUID[] NOT NULL,         -- of the replies that it is to give, in their order
  step     VARCHAR,                 -- NULL in rows of older schema versions
  reserved DECIMAL(18, 9)           -- US dollars that it may cost; NULL where the price is unknown
);

-- Tags of runs; the newest row of a tag counts. A removed tag has a row that says so.
CREATE TABLE IF NOT EXISTS audit.tags (
  tag       VARCHAR NOT NULL,
  run_id    VARCHAR NOT NULL,
  tagged_at TIMESTAMP NOT NULL,
  who       VARCHAR,           -- NULL where it is not known
  removed   BOOLEAN            -- NULL in rows of older schema versions: not removed
);

-- Corrections by hand; they overwrite no rows. A correction applies to a sample as long as the text
-- it is about stays the same, until it is undone.
CREATE TABLE IF NOT EXISTS audit.edits (
  edit_id   UUID NOT NULL,     -- one import, or one undo
  kind      VARCHAR NOT NULL,  -- claims, verdicts or checks
  pipeline  VARCHAR NOT NULL,
  step      VARCHAR NOT NULL,
  sample_id VARCHAR NOT NULL,
  field     VARCHAR NOT NULL,  -- the field of the sample that it is about; of checks several
  text      UUID NOT NULL,     -- hash of the text of that field
  rows      JSON NOT NULL,     -- claims: all claims of the sample; else those that changed
  replaced  JSON NOT NULL,     -- the rows before the correction
  who       VARCHAR NOT NULL,
  why       VARCHAR NOT NULL,
  edited_at TIMESTAMP NOT NULL,
  undoes    UUID               -- the edit that this one undoes
);

-- The outcome of each gate of a run.
CREATE TABLE IF NOT EXISTS audit.gates (
  run_id   VARCHAR NOT NULL,
  metric   VARCHAR NOT NULL,
  rule     VARCHAR NOT NULL,  -- as in "min 0.8"
  baseline VARCHAR,           -- the run compared with; NULL for a gate without one
  value    DOUBLE,            -- the mean, or its difference from the baseline
  low      DOUBLE,
  high     DOUBLE,
  line     DOUBLE NOT NULL,   -- the limit that the gate sets
  outcome  VARCHAR NOT NULL,  -- pass, fail, inconclusive, skipped
  reason   VARCHAR NOT NULL
);

-- The language of each text of a sample; NULL where it is not certain.
CREATE TABLE IF NOT EXISTS audit.languages (
  segment  BIGINT NOT NULL,  -- that of the sample
  field    VARCHAR NOT NULL,
  language VARCHAR
);

-- The models and rules of claimflow that read texts in a run and were not taught every language.
CREATE TABLE IF NOT EXISTS audit.readers (
  run_id    VARCHAR NOT NULL,
  step      VARCHAR NOT NULL,
  reader    VARCHAR NOT NULL,    -- entailment, embedder or parser, the model; or rules
  fields    VARCHAR[] NOT NULL,  -- the fields of the samples whose texts were read
  languages VARCHAR[] NOT NULL   -- what it was taught
);

-- Labels that people gave, by the hash of the texts they read; kept when the run is pruned.
CREATE TABLE IF NOT EXISTS audit.labels (
  import_id   UUID NOT NULL,
  kind        VARCHAR NOT NULL,  -- verdicts, checks, claims or samples
  subject     UUID NOT NULL,     -- hash of the texts that were read
  run_id      VARCHAR NOT NULL,  -- the run and step that the label sheet was made from
  step        VARCHAR NOT NULL,
  sample_id   VARCHAR NOT NULL,
  claim_id    UUID,
  claim       VARCHAR,
  against     VARCHAR,
  passage     BIGINT,
  metric      VARCHAR,           -- of samples: the metric that was rated
  label       VARCHAR,           -- of verdicts, checks and claims
  rating      DOUBLE,            -- of samples, 0 to 1
  annotator   VARCHAR NOT NULL,
  file        VARCHAR NOT NULL,
  draw        VARCHAR NOT NULL,  -- as in "random 100 of 480, seed 0"
  frame       UUID NOT NULL,     -- hash of the population that was drawn from
  probability DOUBLE NOT NULL,   -- probability that this one was drawn
  labelled_at TIMESTAMP NOT NULL,
  unsure      BOOLEAN,           -- whether the annotator could not decide: no label, no rating
  comment     VARCHAR,
  seen        BOOLEAN,           -- whether the annotator had seen what the judge says
  adjudicates BOOLEAN            -- whether it decides between the labels of several annotators
);

-- Verdicts of the judges of a run on its canaries: pairs whose label is known.
CREATE TABLE IF NOT EXISTS audit.canaries (
  run_id    VARCHAR NOT NULL,
  pipeline  VARCHAR NOT NULL,
  step      VARCHAR NOT NULL,
  judge     UUID NOT NULL,       -- hash of the judge, its prompt and its settings
  canary    UUID NOT NULL,       -- hash of premise and claim
  claim     VARCHAR NOT NULL,
  label     VARCHAR NOT NULL,    -- the label that a person gave
  verdict   VARCHAR,             -- the verdict of the judge
  status    VARCHAR NOT NULL,    -- judged, failed
  reason    VARCHAR,
  call_id   UUID,
  anew      BOOLEAN NOT NULL,    -- asked again in this run although there was an earlier verdict
  asked_at  TIMESTAMP NOT NULL,  -- when the judge was last asked
  judged_at TIMESTAMP NOT NULL   -- when the run checked the judge
);

-- Which runs are to be sent where: a sending without an end is taken up by the next one.
CREATE TABLE IF NOT EXISTS audit.sendings (
  run_id   VARCHAR NOT NULL,
  target   VARCHAR NOT NULL,
  metrics  VARCHAR[] NOT NULL,  -- the metrics that are sent; none for all of the run
  began_at TIMESTAMP NOT NULL,
  ended_at TIMESTAMP            -- when the server had answered for all of them
);

-- What a server has taken. A row is written after its answer, so what was sent last before a crash
-- is sent again, under the same id.
CREATE TABLE IF NOT EXISTS audit.sent (
  evaluation_id UUID NOT NULL,  -- hash of run, sample, step, metric and target; of mlflow, of the run
  run_id        VARCHAR NOT NULL,
  target        VARCHAR NOT NULL,
  address       UUID NOT NULL,  -- hash of the address, which has no keys in it
  sent_at       TIMESTAMP NOT NULL
);

-- The agreement of a judge with people, and how its verdicts were made at that time.
CREATE TABLE IF NOT EXISTS audit.calibrations (
  calibration_id UUID NOT NULL,     -- hash of all columns below but the time
  run_id         VARCHAR NOT NULL,
  pipeline       VARCHAR NOT NULL,
  step           VARCHAR NOT NULL,
  stage          VARCHAR NOT NULL,
  version        INTEGER NOT NULL,
  settings       JSON NOT NULL,     -- with the text of the prompt
  tools          JSON NOT NULL,     -- with the model and its parameters
  labels         BIGINT NOT NULL,   -- the number of labels used
  figures        JSON NOT NULL,     -- as printed by `claimflow calibrate --format json`
  calibrated_at  TIMESTAMP NOT NULL
);
