"""The sentence encoder compared with the official model, whose cosines are the literals here.

They were computed from the 32-bit weights with the transformers library on torch.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from claimflow.flows.errors import InputError
from claimflow.flows.models.sentence_encoder import MINILM_FOLDER, SentenceEncoder

TINY = Path(__file__).parents[1] / "data" / "tiny_encoder" / "model.onnx"
EIFFEL = "The Eiffel Tower is located in Paris."
LIBRARY = (
    "The law library has books, forms and printers. Its staff cannot give legal advice, but "
    "they can point to relevant materials and to people who may help."
)
COSINES = [
    ("Einstein was born in 1879.", "Albert Einstein was born on 14 March 1879.", 0.8947),
    ("Einstein was born in 1879.", "Einstein was born in 1905.", 0.8553),
    (EIFFEL, "The Eiffel Tower has a height of 1000ft.", 0.7295),
    (EIFFEL, "Preferred stocks usually have no voting rights.", -0.0435),
    ("A cat sat on the mat.", "A cat did not sit on the mat.", 0.7872),
    ("Der Eiffelturm steht in Paris.", EIFFEL, 0.5699),
    ("巴黎的埃菲尔铁塔", EIFFEL, 0.1256),
    ("I love it 😀", "I hate it 😡", 0.6746),
    ("yes", "no", 0.7335),
    (LIBRARY, "Library staff may suggest materials, not advise on the law.", 0.6428),
    ("\x00", "?", 0.7257),
]
CLAIMS = [text for left, right, _ in COSINES for text in (left, right)]
SHARED = SentenceEncoder(threads=1)


@pytest.fixture(scope="module")
def embedder() -> SentenceEncoder:
    return SHARED


def vectors(embedder: SentenceEncoder, *texts: str) -> np.ndarray:
    """Embeddings in the order of `texts`, repetitions included."""
    found = dict(embedder.embed(texts).iter_rows())
    return np.array([found[text] for text in texts])


@pytest.mark.parametrize(("left", "right", "cosine"), COSINES)
def test_cosines_are_those_of_the_official_model(embedder, left, right, cosine):
    a, b = vectors(embedder, left, right)
    assert a @ b == pytest.approx(cosine, abs=0.02)


def test_one_row_per_distinct_text_in_the_order_first_seen(embedder):
    table = embedder.embed(["b", "a", "b", "", "a"])
    assert table.schema == {"text": pl.String, "embedding": pl.Array(pl.Float32, 384)}
    assert table["text"].to_list() == ["b", "a", ""]


def test_no_texts_give_no_rows_and_load_no_model():
    embedder = SentenceEncoder()
    assert embedder.embed([]).schema == {
        "text": pl.String,
        "embedding": pl.Array(pl.Float32, 384),
    }
    assert "_session" not in vars(embedder)


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_every_text_has_a_vector_of_length_one(texts):
    made = SHARED.embed(texts)["embedding"].to_numpy()
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)


def test_a_vector_does_not_depend_on_its_neighbours(embedder):
    together = vectors(embedder, *CLAIMS)
    alone = np.array([vectors(embedder, text)[0] for text in CLAIMS])
    assert np.abs(together - alone).max() < 1e-5


def test_a_vector_does_not_depend_on_neighbours_that_are_far_from_it(embedder):
    """They have the same number of tokens, so one batch: a scale over the batch would show."""
    calm, wild = "the cat sat on the mat .", "[SEP] [SEP] ? ? [CLS] zzz !"
    (alone,) = vectors(embedder, calm)
    assert np.abs(vectors(embedder, wild, calm, wild.swapcase())[1] - alone).max() < 1e-5


def test_a_vector_does_not_depend_on_the_order(embedder):
    assert np.abs(vectors(embedder, *CLAIMS) - vectors(embedder, *CLAIMS[::-1])[::-1]).max() < 1e-5


def test_the_same_texts_give_the_same_bytes(embedder):
    assert SentenceEncoder(threads=1).embed(CLAIMS).equals(embedder.embed(CLAIMS))


def test_several_threads_may_use_a_model_that_is_not_loaded():
    fresh = SentenceEncoder(threads=1)
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(fresh.embed, [CLAIMS[:6]] * 4))
    assert all(table.equals(tables[0]) for table in tables)


def test_a_long_text_is_the_mean_of_its_pieces_weighted_by_tokens(embedder):
    first, second = " ".join(["library"] * 254), " ".join(["tower"] * 100)
    whole, a, b = vectors(embedder, f"{first} {second}", first, second)
    mean = 256 * a + 102 * b
    assert whole == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_the_end_of_a_long_text_counts(embedder):
    start = "stocks and bonds " * 100
    left, right = vectors(embedder, start + EIFFEL * 20, start + "Cats sleep. " * 20)
    assert left @ right < 0.9


def test_long_texts_are_embedded(embedder):
    """Equal pieces are embedded once, so that most of the time is tokenising."""
    texts = ["word " * 40_000, "a" * 200_000, "漢" * 66_000, "\0" * 200_000, "😀" * 50_000]
    made = embedder.embed(texts)["embedding"].to_numpy()
    assert np.isfinite(made).all()


def tiny(folder: Path, **changes: object) -> Path:
    """A folder with an encoder of eight words, of which word i has the vector (i + 1, 0, 2)."""
    shutil.copy(TINY, folder / "model.onnx")
    words = Tokenizer(WordLevel({word: i for i, word in enumerate("abcdefg?")}, unk_token="?"))
    words.pre_tokenizer = Whitespace()
    words.save(str(folder / "tokenizer.json"))
    chosen = {"pooling": "mean", "max_length": 4, "dimension": 3} | changes
    (folder / "encoder.json").write_text(json.dumps(chosen), "utf-8")
    return folder


def direction(*numbers: float) -> list[float]:
    return pytest.approx(np.array(numbers) / np.linalg.norm(numbers), abs=1e-6)


def test_mean_pooling_of_another_encoder(tmp_path):
    other = SentenceEncoder(tiny(tmp_path))
    assert vectors(other, "a c")[0] == direction(2, 0, 2)
    assert other.identity["dimension"] == 3


def test_cls_pooling_of_another_encoder(tmp_path):
    assert vectors(SentenceEncoder(tiny(tmp_path, pooling="cls")), "c a a")[0] == direction(3, 0, 2)


def test_a_text_without_tokens_gets_zeros(tmp_path):
    assert vectors(SentenceEncoder(tiny(tmp_path)), "")[0].tolist() == [0, 0, 0]


def test_every_piece_of_a_long_text_counts(tmp_path):
    other = SentenceEncoder(tiny(tmp_path, pooling="cls", max_length=3))
    text = "a a a  b b b  c c c  d d d  e e e"
    of_words = vectors(other, "a", "b", "c", "d", "e")
    assert vectors(other, text)[0] == direction(*of_words.sum(axis=0))


def test_a_folder_as_sentence_transformers_publishes_it(tmp_path, embedder):
    for name in ("onnx", "1_Pooling"):
        (tmp_path / name).mkdir()
    shutil.copy(MINILM_FOLDER / "model.onnx", tmp_path / "onnx")
    shutil.copy(MINILM_FOLDER / "tokenizer.json", tmp_path)
    pooling = {"pooling_mode_mean_tokens": True, "word_embedding_dimension": 384}
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(pooling), "utf-8")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}', "utf-8")
    published = SentenceEncoder(tmp_path, threads=1)
    assert published.embed(CLAIMS).equals(embedder.embed(CLAIMS))
    assert published.identity["model_sha256"] == embedder.identity["model_sha256"]


def messages(folder: Path, **changes: object) -> list[str]:
    with pytest.raises(InputError) as caught:
        SentenceEncoder(folder, **changes).embed(["a"])
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_all_missing_files_are_reported_at_once(tmp_path):
    assert messages(tmp_path) == [
        "model.onnx: no such file; put the encoder there in ONNX format",
        "tokenizer.json: no such file; put the encoder's tokenizer there",
        "encoder.json: no such file; give pooling (mean or cls), max_length (tokens) and "
        "dimension (numbers)",
    ]


def test_all_wrong_settings_are_reported(tmp_path):
    assert messages(tiny(tmp_path, pooling="max", max_length=True)) == [
        "encoder.json: pooling: Input should be 'mean' or 'cls'; give pooling (mean or cls), "
        "max_length (tokens) and dimension (numbers)",
        "encoder.json: max_length: Input should be a valid integer; give pooling (mean or cls), "
        "max_length (tokens) and dimension (numbers)",
    ]


def test_a_model_of_another_dimension_is_refused(tmp_path):
    assert messages(tiny(tmp_path, dimension=384)) == [
        "model.onnx: has the output shape ['batch', 'sequence', 3]; it must give batch, tokens and "
        "384 numbers"
    ]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("model.onnx", "it must be an ONNX model"),
        ("tokenizer.json", "it must be a tokenizers file"),
    ],
)
def test_files_that_cannot_be_loaded_are_named(tmp_path, name, right):
    (tiny(tmp_path) / name).write_bytes(b"not it")
    (line,) = messages(tmp_path)
    assert line.startswith(f"{name}: cannot be loaded (")
    assert line.endswith(right)


def test_the_identity_is_that_of_the_shipped_files(embedder):
    shipped = json.loads((MINILM_FOLDER / "encoder.json").read_text("utf-8"))
    assert embedder.identity == {
        "name": "all-MiniLM-L6-v2",
        "model_sha256": shipped["model_sha256"],
        "tokenizer_sha256": "5fd1c882abbd30517dced455a2c9768945ec726b96727927e4959348d9de550b",
        "pooling": "mean",
        "max_length": 256,
        "dimension": 384,
    }


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_other_files_have_another_identity(tmp_path, name):
    """Stored embeddings of one encoder are not reused for another."""
    before = SentenceEncoder(tiny(tmp_path)).identity
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b" ")
    changed = {
        key for key, value in SentenceEncoder(tmp_path).identity.items() if value != before[key]
    }
    assert changed == {name.replace(".onnx", "_sha256").replace(".json", "_sha256")}


def test_known_embeddings_give_the_same_table(embedder):
    made = embedder.embed(CLAIMS[:2])
    known = [vector.tobytes() for vector in made["embedding"].to_numpy()]
    assert embedder.table(CLAIMS[:2], known).equals(made)
