-- Views over the views of rows. They are replaced when the schema version of a store changes;
-- each but those of audit is also made in the schema latest, and described in comments.sql.

-- The runs that are done and have all samples and all steps of their pipeline: what `latest`,
-- `previous`, trends and baselines choose from.
CREATE OR REPLACE VIEW audit.whole_runs AS
SELECT run_id, pipeline, started_at FROM audit.runs WHERE status = 'done' AND selection IS NULL;

-- The newest whole run of each pipeline, which the views of the schema latest show.
CREATE OR REPLACE VIEW audit.latest_runs AS
SELECT pipeline, arg_max(run_id, started_at) AS run_id, max(started_at) AS started_at
FROM audit.whole_runs GROUP BY pipeline;

-- Verdicts with their samples and claims. The same claim may come from several steps of a run.
CREATE OR REPLACE VIEW claim_verdicts AS
SELECT run_id, step, sample_id, "of", claim, verdicts.* EXCLUDE (run_id, step)
FROM verdicts
JOIN (SELECT run_id, claim_id, any_value(sample_id) AS sample_id, min("of") AS "of",
             any_value(claim) AS claim FROM claims GROUP BY run_id, claim_id)
USING (run_id, claim_id);

-- Sentences that claim nothing, with their words.
CREATE OR REPLACE VIEW non_claims AS
SELECT run_id, claims.step, sample_id, "of", kind,
       substring(CASE "of" WHEN 'response' THEN response ELSE reference END,
                 start + 1, stop - start) AS "text", start, stop
FROM claims JOIN samples USING (run_id, sample_id)
WHERE claims.status = 'not_a_claim';

-- Verdicts on which several votes were cast that differ. The claim of a check of a rubric is its
-- name with its criterion, or with the claim that it is about.
CREATE OR REPLACE VIEW unstable AS
SELECT run_id, step, sample_id, claim, against, passage, verdict, agreement, ballot
FROM claim_verdicts WHERE agreement < 1
UNION ALL
SELECT run_id, step, rubric_verdicts.sample_id,
       concat_ws(': ', check_name, coalesce(about.claim, criterion)), NULL, NULL,
       verdict, agreement, ballot
FROM rubric_verdicts
LEFT JOIN (SELECT DISTINCT run_id, claim_id, claim FROM claims) about USING (run_id, claim_id)
WHERE agreement < 1;

-- The turns of conversations: the samples whose metadata name one.
CREATE OR REPLACE VIEW turns AS
SELECT run_id, step, metadata ->> '$.conversation_id' AS conversation_id,
       TRY_CAST(metadata ->> '$.turn' AS BIGINT) AS turn, sample_id, user_input, response
FROM samples WHERE (metadata ->> '$.conversation_id') IS NOT NULL;

-- The scores of each metric by conversation.
CREATE OR REPLACE VIEW conversation_scores AS
SELECT run_id, step, conversation_id, metric, count(*) AS turns, count(score) AS n_scored,
       avg(score) AS mean, min(score) AS minimum
FROM scores
JOIN (SELECT run_id, sample_id, conversation_id FROM turns) USING (run_id, sample_id)
GROUP BY run_id, step, conversation_id, metric;

-- Cascades: who gave the verdicts of each step, and how often the judge disagrees where the
-- embedded model was sure.
CREATE OR REPLACE VIEW cascades AS
SELECT run_id, step, sum(verdicts)::BIGINT AS verdicts, sum(settled)::BIGINT AS settled,
       sum(referred)::BIGINT AS referred, sum(audited)::BIGINT AS audited,
       sum(failed)::BIGINT AS failed, sum(disagreed)::BIGINT AS disagreed,
       sum(relabelled)::BIGINT AS relabelled,
       sum(votes * (ceil(verdicts / per_call) - ceil((verdicts - settled) / per_call)))::BIGINT
           AS calls_saved
FROM (
  SELECT run_id, step, sample_id, passage,
         (settings ->> '$.claims_per_call')::INTEGER AS per_call,
         (settings ->> '$.votes')::INTEGER AS votes, count(*) AS verdicts,
         count(*) FILTER (judged_by = 'embedded') AS settled,
         count(*) FILTER (judged_by = 'judge') AS referred,
         count(*) FILTER (judged_by = 'audit' AND verdict IS NOT NULL) AS audited,
         count(*) FILTER (verdict IS NULL) AS failed,
         count(*) FILTER (judged_by = 'audit'
             AND (verdict = 'entailed') <> (model_verdict = 'entailed')) AS disagreed,
         count(*) FILTER (judged_by = 'audit' AND verdict <> model_verdict) AS relabelled
  FROM verdicts
  JOIN (SELECT DISTINCT run_id, claim_id, sample_id FROM claims) USING (run_id, claim_id)
  JOIN audit.run_steps USING (run_id, step)
  JOIN (SELECT artifact_id, settings FROM audit.artifacts) USING (artifact_id)
  WHERE judged_by IS NOT NULL
  GROUP BY ALL
)
GROUP BY run_id, step;

-- The language of each text of the samples of a run.
CREATE OR REPLACE VIEW text_languages AS
SELECT run_id, sample_id, field, language
FROM audit.languages JOIN stored.samples USING (segment)
JOIN (SELECT * FROM audit.artifact_segments WHERE kind = 'samples') USING (segment)
JOIN audit.run_steps USING (artifact_id);

-- Texts that a model or rules of claimflow read, and were not taught the language of.
CREATE OR REPLACE VIEW untaught_texts AS
SELECT run_id, step, reader, sample_id, field, language
FROM text_languages JOIN audit.readers USING (run_id)
WHERE list_contains(fields, field) AND NOT list_contains(languages, language);
