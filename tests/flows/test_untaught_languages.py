"""Texts in languages that embedded models were not taught: found, stored and told of, once."""

import json
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import claimflow
from claimflow.flows.cli.main import main
from claimflow.flows.models.folders import declared_languages
from claimflow.flows.store.artifacts import find_artifact
from claimflow.flows.store.integrity import check_store
from claimflow.flows.store.languages import (
    RULES,
    TEXT_FIELDS,
    Reader,
    count_untaught,
    detected_languages,
    record_languages,
    stored_languages,
)
from claimflow.flows.store.pruning import Retention, prune
from claimflow.flows.store.store import Store
from claimflow.testing import ScriptedJudge

TINY = Path(__file__).parents[1] / "data" / "tiny_cross_encoder"

ENGLISH = {
    "sample_id": "en",
    "user_input": "Where is the tower and how old is it?",
    "response": "The tower is in Paris and it was built in 1889.",
    "reference": "The tower is in Paris and it was built of iron.",
    "retrieved_contexts": ["The tower is in Paris.", "It was built in 1889 and is of iron."],
}
GERMAN = {
    "sample_id": "de",
    "user_input": "Wo ist der Turm und wie alt ist er?",
    "response": "Der Turm ist in Paris und wurde 1889 gebaut.",
    "reference": "Der Turm ist in Paris und wurde aus Eisen gebaut.",
    "retrieved_contexts": ["Der Turm ist in Paris.", "Er wurde 1889 gebaut und ist aus Eisen."],
}
CHINESE = {
    "sample_id": "zh",
    "user_input": "埃菲尔铁塔在法国的哪一座城市？",
    "response": "埃菲尔铁塔位于法国首都巴黎，建成于1889年。",
    "reference": "埃菲尔铁塔位于法国首都巴黎，用铁建造。",
    "retrieved_contexts": ["埃菲尔铁塔位于法国首都巴黎。"],
}
SAMPLES = [ENGLISH, GERMAN, CHINESE]
STEPS = {
    "response_claims": {"use": "decompose_claims", "of": "response"},
    "response_in_contexts": {
        "use": "verify_claims",
        "claims": "response_claims",
        "against": "retrieved_contexts",
    },
    "faithfulness": {"use": "faithfulness"},
    "similarity": {"use": "embedding_similarity", "left": "response", "right": "reference"},
    "semantic_similarity": {"use": "semantic_similarity"},
    "summary": {"use": "summarize_scores"},
}
LINE = (
    "warning: 2 of 3 samples with text in languages that the embedded models of "
    "response_in_contexts, similarity were not taught (Chinese 1, German 1): do not trust their "
    "figures; use a language model judge (`judge: {model: ...}`) or a multilingual model of the "
    "Hub (`entailment: {model: OWNER/NAME}`) and a multilingual encoder "
    "(`embedder: {model: FOLDER}`)"
)


def write(folder: Path, samples: list[dict[str, Any]] = SAMPLES, **sections: Any) -> None:
    text = "".join(json.dumps(sample) + "\n" for sample in samples)
    (folder / "samples.jsonl").write_text(text, "utf-8")
    pipeline = {"name": "mixed", "samples": {"path": "samples.jsonl"}, "store": "s.duckdb"}
    content = {**pipeline, "steps": STEPS, **sections}
    (folder / "mixed.yaml").write_text(json.dumps(content, indent=1), "utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    write(tmp_path)
    with chdir(tmp_path):
        yield tmp_path


def flat(text: str) -> str:
    return " ".join(text.split())


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 0
    return flat(capsys.readouterr().out)


def rows(query: str) -> list[tuple[Any, ...]]:
    with Store(Path("s.duckdb")).reading() as connection:
        return connection.execute(query).fetchall()


def test_a_run_says_it_once_wherever_it_is_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, "plan", "mixed.yaml").count(LINE) == 1
    first = printed(capsys, "run", "mixed.yaml")
    assert first.count(LINE) == 1
    # Beside the numbers: before anything else that is said of the run.
    assert first.index("semantic_similarity ") < first.index(LINE) < first.index("lowest samples")
    reused = printed(capsys, "run", "mixed.yaml")
    assert "0 steps made" in reused
    assert reused.count(LINE) == 1
    assert printed(capsys, "plan", "mixed.yaml").count(LINE) == 1
    plain = LINE.removeprefix("warning: ")
    result = claimflow.connect(folder / "s.duckdb").result()
    assert result.warnings == [LINE]
    assert flat(repr(result)).count(LINE) == 1
    markdown = result.report(folder / "r.md").read_text("utf-8")
    what, hint = plain.split("; use ")
    assert markdown.count(f"**warning** `{what}`; use {hint}\n") == 1
    assert markdown.index("| metric |") < markdown.index("were not taught")
    page = result.report(folder / "r.html").read_text("utf-8")
    assert page.count("were not taught") == 1
    assert page.index('id="metrics"') < page.index("were not taught") < page.index("<table>")
    found = json.loads(result.report(folder / "r.json").read_text("utf-8"))["untaught"]
    assert found == {
        "samples": 2,
        "every": 3,
        "languages": {"Chinese": 1, "German": 1},
        "steps": ["response_in_contexts", "similarity"],
        "readers": ["entailment", "embedder"],
    }


def test_sql_sees_the_language_of_every_text_that_was_read(folder: Path) -> None:
    assert main(["run", "mixed.yaml"]) == 0
    languages = rows("SELECT sample_id, field, language FROM latest.text_languages")
    expected = {"en": "English", "de": "German", "zh": "Chinese"}
    assert sorted(languages) == sorted(
        (sample_id, field, language)
        for sample_id, language in expected.items()
        for field in TEXT_FIELDS
    )
    untaught = rows(
        "SELECT step, reader, field, list(sample_id ORDER BY sample_id) FROM latest.untaught_texts "
        "GROUP BY ALL ORDER BY ALL"
    )
    assert untaught == [
        ("response_claims", "rules", "response", ["de", "zh"]),
        ("response_in_contexts", "entailment", "response", ["de", "zh"]),
        ("response_in_contexts", "entailment", "retrieved_contexts", ["de", "zh"]),
        ("similarity", "embedder", "reference", ["de", "zh"]),
        ("similarity", "embedder", "response", ["de", "zh"]),
    ]
    assert check_store(Store(Path("s.duckdb"))).faults == []


def test_languages_are_stored_once_and_pruned_with_their_samples(folder: Path) -> None:
    for _ in range(2):
        assert main(["run", "mixed.yaml"]) == 0
    assert rows("SELECT count(*) FROM audit.languages") == [(12,)]
    assert rows("SELECT count(*) FROM audit.readers") == [(6,)]
    write(folder, [ENGLISH])
    assert main(["run", "mixed.yaml"]) == 0
    store = Store(folder / "s.duckdb")
    prune(store, Retention(runs=1))
    detected = "SELECT DISTINCT sample_id FROM audit.languages JOIN stored.samples USING (segment)"
    assert rows(detected) == [("en",)]
    assert rows("SELECT count(DISTINCT run_id) FROM audit.readers") == [(1,)]
    assert claimflow.connect(store.path).result().warnings == []


def test_languages_that_another_run_recorded_meanwhile_are_not_recorded_again(
    folder: Path,
) -> None:
    assert main(["run", "mixed.yaml"]) == 0
    store = Store(folder / "s.duckdb")
    with store.reading() as connection:
        [(key,)] = connection.execute(
            "SELECT fingerprint::VARCHAR FROM audit.artifacts WHERE kind = 'samples'"
        ).fetchall()
        samples = find_artifact(connection, key)
    assert samples is not None
    record_languages(
        store, [pl.DataFrame({"segment": [1], "field": ["response"], "language": ["German"]})]
    )
    assert stored_languages(store, samples).height == 12
    assert rows("SELECT count(*) FROM audit.languages") == [(12,)]


def test_a_plan_takes_the_languages_that_a_run_detected(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = printed(capsys, "plan", "mixed.yaml").count(LINE.split("(", maxsplit=1)[0])
    assert main(["run", "mixed.yaml"]) == 0
    with Store(folder / "s.duckdb").writing() as connection:
        connection.execute(
            "UPDATE audit.languages SET language = 'Greek' WHERE language = 'German'"
        )
    after = printed(capsys, "plan", "mixed.yaml")
    assert (before, after.count("Chinese 1, Greek 1")) == (1, 1)


def test_english_samples_and_steps_without_models_give_no_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, [ENGLISH, ENGLISH | {"sample_id": "short", "response": "In Paris."}])
    assert "not taught" not in printed(capsys, "plan", "mixed.yaml")
    assert "not taught" not in printed(capsys, "run", "mixed.yaml")
    matches = {"context_matches": {"use": "lexical_match", "against": "retrieved_contexts"}}
    write(folder, steps=matches, store="other.duckdb")
    assert "not taught" not in printed(capsys, "plan", "mixed.yaml")
    assert "not taught" not in printed(capsys, "run", "mixed.yaml")
    with Store(folder / "other.duckdb").reading() as connection:
        assert connection.execute("SELECT count(*) FROM audit.languages").fetchall() == [(0,)]


def test_rules_alone_are_no_reason_to_warn(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, steps={"response_claims": STEPS["response_claims"]})
    assert "not taught" not in printed(capsys, "plan", "mixed.yaml")
    assert "not taught" not in printed(capsys, "run", "mixed.yaml")
    assert rows("SELECT DISTINCT reader FROM untaught_texts") == [("rules",)]


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ("---\nlanguage: multilingual\n---\n", ""),
        ("---\nlanguage: [en, de, zh]\n---\n", ""),
        ("---\nlanguage:\n- en\n- de\n---\n", "1 of 3 samples"),
        ("# A model\n", "2 of 3 samples"),
        (None, "2 of 3 samples"),
    ],
)
def test_a_cross_encoder_declares_its_languages(
    folder: Path, card: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(TINY, "model", ignore=lambda *_: ["README.md"])
    if card is not None:
        Path("model/README.md").write_text(card, "utf-8")
    steps = {name: step for name, step in STEPS.items() if "similarity" not in name}
    write(folder, steps=steps, entailment={"model": "model"})
    for text in (printed(capsys, "plan", "mixed.yaml"), printed(capsys, "run", "mixed.yaml")):
        assert text.count("not taught") == bool(told)
        assert told in text
        assert "embedder:" not in text
    # The card changes no verdict, so nothing is made again.
    Path("model/README.md").write_text("---\nlanguage: mul\n---\n", "utf-8")
    again = printed(capsys, "run", "mixed.yaml")
    assert "0 steps made" in again
    assert "not taught" not in again


def test_a_language_model_gives_no_line() -> None:
    judge = ScriptedJudge(claims=lambda text: [text], verdict=lambda *_: "entailed")
    result = claimflow.evaluate(SAMPLES, metrics=["faithfulness"], judge=judge)
    assert result.warnings == []
    assert result.sql("SELECT count(*) FROM untaught_texts").item() == 0
    without = claimflow.evaluate(SAMPLES, metrics=["faithfulness"])
    [line] = without.warnings
    assert line.startswith("warning: 2 of 3 samples with text in languages")


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("language: de", {"German"}),
        ("license: mit\nlanguage: 'zh-CN'\ntags: [en]", {"Chinese"}),
        ("language: [\n  en,\n  ja\n]", {"English", "Japanese"}),
        ("language: \n  - nb\n  - ru\n", {"Danish or Norwegian", "Cyrillic"}),
        ("language:\n- en\n- multilingual", None),
        ("languages: mul", None),
        ("language: xx", {"English"}),
        ("language:", {"English"}),
        ("license: mit", {"English"}),
    ],
)
def test_the_head_of_a_model_card_names_languages(
    head: str, expected: set[str] | None, tmp_path: Path
) -> None:
    assert declared_languages(tmp_path) == {"English"}
    (tmp_path / "README.md").write_text(f"---\n{head}\n---\nlanguage: fr\n", "utf-8")
    assert declared_languages(tmp_path) == expected
    (tmp_path / "README.md").write_text(f"{head}\n", "utf-8")
    assert declared_languages(tmp_path) == {"English"}


def test_long_and_broken_model_cards_are_read_quickly(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    for text in ("---\n" * 50_000, "---\nlanguage:" + "\n-" * 90_000, "---\n" + "[" * 90_000):
        card.write_text(text, "utf-8")
        assert declared_languages(tmp_path) in ({"English"}, None)
    card.write_bytes(b"---\nlanguage: de\xff\n---\n")
    assert declared_languages(tmp_path) == {"German"}


def test_blank_and_missing_texts_have_no_language() -> None:
    texts = {"sample_id": ["a"], "user_input": [None], "response": [" \n"], "reference": ["1889"]}
    samples = pl.DataFrame({**texts, "retrieved_contexts": [[None, GERMAN["response"]]]})
    assert detected_languages(samples, TEXT_FIELDS).rows() == [
        ("a", "reference", None),
        ("a", "retrieved_contexts", "German"),
    ]


NAMES = ["English", "German", "Chinese"]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("abcd"),
                st.sampled_from(TEXT_FIELDS),
                st.sampled_from([*NAMES, None]),
            ),
            max_size=8,
            unique_by=lambda row: row[:2],
        ),
        max_size=2,
    ),
    st.lists(
        st.builds(
            Reader,
            st.sampled_from(["first", "second"]),
            st.sampled_from(["entailment", "embedder", RULES]),
            st.lists(st.sampled_from(TEXT_FIELDS), unique=True).map(tuple),
            st.frozensets(st.sampled_from(NAMES)),
        ),
        max_size=3,
    ),
)
def test_planned_counts_are_those_of_each_text_and_reader(
    shards: list[list[tuple[str, str, str | None]]], readers: list[Reader]
) -> None:
    names = ["sample_id", "field", "language"]
    schema = dict.fromkeys(names, pl.String)
    tables = [pl.DataFrame(shard, schema=schema, orient="row") for shard in shards]
    found = count_untaught(tables, readers, 4)
    pairs = {
        (sample_id, language, one.step, one.reader)
        for shard in shards
        for sample_id, field, language in shard
        for one in readers
        if one.reader != RULES and field in one.fields and language
        if language not in one.languages
    }
    if not pairs:
        assert found is None
        return
    assert found is not None
    assert (found.samples, found.every) == (len({pair[0] for pair in pairs}), 4)
    assert found.languages == {
        language: len({pair[0] for pair in pairs if pair[1] == language})
        for language in {pair[1] for pair in pairs}
    }
    assert set(found.steps) == {pair[2] for pair in pairs}
    assert set(found.readers) == {pair[3] for pair in pairs}
