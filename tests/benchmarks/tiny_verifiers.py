"""Make tiny models of the architectures of published verifiers, for the tests.

    pip install -e . "optimum-onnx[onnxruntime]" torch
    python -m tests.benchmarks.tiny_verifiers tests/data/tiny_verifiers

The weights are random and the texts a few sentences; vocabularies come out a little differently
each time. The models are exported as a user would export the published ones. `expected.json` has
the probability of each pair being supported as each model's publisher computes it, with
transformers: the tests compare.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from optimum.exporters.onnx import main_export
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram
from tokenizers.trainers import BpeTrainer, UnigramTrainer
from transformers import (
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    GraniteConfig,
    GraniteForCausalLM,
    ModernBertConfig,
    ModernBertForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    T5ForTokenClassification,
)

from claimflow.flows.pipeline.verifier_forms import KNOWN_FORMS, Form, in_order

SENTENCES = (
    "The bridge over the river was opened in 1932 by the mayor of the town.",
    "It carries two tracks and a road, and 40,000 people cross it every day.",
    "The museum shows paintings from Norway; it is closed on Mondays.",
    "Marie Curie was born in Warsaw and won two Nobel Prizes.",
    "Nothing about the price of tickets is known.",
)
PAIRS = (
    (SENTENCES[0], "The mayor opened the bridge."),
    (f"{SENTENCES[0]} {SENTENCES[1]}", "40,000 people cross the bridge."),
    (SENTENCES[3], "Marie Curie won one Nobel Prize."),
    (SENTENCES[2], "The museum is open on Mondays."),
    (" ".join(SENTENCES), "Tickets are free."),
    ("It rains.", "The river is near."),
)
VOCABULARY, SIZE = 320, 16
FORMS = {**KNOWN_FORMS, "one-output": Form(answers=in_order(("entailed",)))}


def prompt(name: str, premise: str, claim: str) -> list[str]:
    """The texts that the model reads."""
    return [text.format(premise=premise, claim=claim) for text in FORMS[name].texts]


def unigram(special: list[str], unknown: str, single: str, pair: str) -> Tokenizer:
    """A tokenizer as that of T5 and of DeBERTa."""
    tokenizer = Tokenizer(Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=VOCABULARY, special_tokens=special, unk_token=unknown, show_progress=False
    )
    tokenizer.train_from_iterator(
        [*SENTENCES, *(claim for _, claim in PAIRS), "0 1 Yes No"], trainer
    )
    return with_template(tokenizer, single, pair, special)


def byte_pairs(special: list[str], single: str, pair: str) -> Tokenizer:
    """A tokenizer as those of RoBERTa, ModernBERT and Granite."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [*SENTENCES, *(claim for _, claim in PAIRS), "Yes No", "Yes", "No"] * 2
    tokenizer.train_from_iterator(texts, trainer)
    return with_template(tokenizer, single, pair, special)


def with_template(tokenizer: Tokenizer, single: str, pair: str, special: list[str]) -> Tokenizer:
    """The tokenizer with the special tokens that stand around one text, and around two."""
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in special])
    if single:
        tokens = [(one, tokenizer.token_to_id(one)) for one in special]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=tokens
        )
    return tokenizer


def t5_tokenizer() -> Tokenizer:
    """`<pad>`, `</s>` and `<unk>`, with `</s>` at the end."""
    return unigram(["<pad>", "</s>", "<unk>"], "<unk>", "$A </s>", "$A </s> $B </s>")


Made = tuple[PreTrainedModel, Tokenizer, str, dict[str, Any]]


def factcg() -> Made:
    """DeBERTa v2 with two outputs."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    tokenizer = unigram(special, "[UNK]", "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    config = DebertaV2Config(
        vocab_size=tokenizer.get_vocab_size(),
        **{"hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"intermediate_size": 32, "max_position_embeddings": 64, "position_buckets": 16},
        **{
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "norm_rel_ebd": "layer_norm",
        },
        **{"position_biased_input": False, "type_vocab_size": 0, "share_att_key": True},
        **{"pooler_hidden_size": SIZE, "initializer_range": 0.3},
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "eos_token": "[SEP]"}
    return DebertaV2ForSequenceClassification(config), tokenizer, "text-classification", names


def minicheck_roberta(outputs: int = 2) -> Made:
    """RoBERTa with two outputs."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = byte_pairs(special, "<s> $A </s>", "<s> $A </s> </s> $B </s>")
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **{"hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"intermediate_size": 32, "max_position_embeddings": 514, "type_vocab_size": 1},
        **{"pad_token_id": 1, "initializer_range": 0.5, "num_labels": outputs},
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return RobertaForSequenceClassification(config), tokenizer, "text-classification", names


def one_output() -> Made:
    """RoBERTa with one output."""
    return minicheck_roberta(1)


def _t5(tokenizer: Tokenizer) -> T5Config:
    return T5Config(
        vocab_size=tokenizer.get_vocab_size(),
        **{"d_model": SIZE, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
        **{"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1},
        **{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        **{"initializer_factor": 0.6, "num_labels": 2},
    )


T5_NAMES = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def minicheck_t5() -> Made:
    """T5 with encoder and decoder, which says 0 or 1."""
    tokenizer = t5_tokenizer()
    model = T5ForConditionalGeneration(_t5(tokenizer))
    return model, tokenizer, "text2text-generation", T5_NAMES


def hhem() -> Made:
    """The encoder of T5 with two outputs for each token."""
    tokenizer = t5_tokenizer()
    return T5ForTokenClassification(_t5(tokenizer)), tokenizer, "", T5_NAMES


def lettucedetect() -> Made:
    """ModernBERT with two outputs for each token."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    tokenizer = byte_pairs(special, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
    config = ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **{"hidden_size": SIZE, "num_hidden_layers": 3, "num_attention_heads": 2},
        **{"intermediate_size": 32, "local_attention": 16, "global_attn_every_n_layers": 3},
        **{"max_position_embeddings": 8192, "pad_token_id": 0, "cls_token_id": 1},
        **{"sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.5},
        **{"attn_implementation": "eager", "reference_compile": False, "num_labels": 2},
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return ModernBertForTokenClassification(config), tokenizer, "token-classification", names


def granite_guardian() -> Made:
    """A Granite language model, which says Yes or No."""
    special = ["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"]
    tokenizer = byte_pairs(special, "", "")
    config = GraniteConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **{"hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"num_key_value_heads": 1, "intermediate_size": 32, "max_position_embeddings": 4096},
        **{"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "initializer_range": 0.5},
    )
    return GraniteForCausalLM(config), tokenizer, "text-generation", {"eos_token": special[0]}


def supported(name: str, model: Any, tokenizer: Any, premise: str, claim: str) -> float:
    """The probability that the claim is supported, as the publisher of the model computes it."""
    inputs = tokenizer(*prompt(name, premise, claim), return_tensors="pt")
    inputs.pop("token_type_ids", None)
    if name == "minicheck-t5":
        start = torch.zeros((1, 1), dtype=torch.long)
        logits = model(**inputs, decoder_input_ids=start).logits[0, 0]
        ids = [tokenizer(word, add_special_tokens=False).input_ids[0] for word in ("0", "1")]
        return float(torch.softmax(logits[ids], -1)[1])
    if name == "granite-guardian":
        ids = [tokenizer(word, add_special_tokens=False).input_ids[0] for word in ("Yes", "No")]
        return float(torch.softmax(model(**inputs).logits[0, -1, ids], -1)[1])
    logits = model(**inputs).logits[0]
    if name == "hhem":
        return float(torch.softmax(logits[0], -1)[1])
    if name == "lettucedetect":
        sequences = inputs.encodings[0].sequence_ids
        claims = [place for place, number in enumerate(sequences) if number == 1]
        return float(1 - torch.softmax(logits[claims], -1)[:, 1].max())
    if name == "one-output":
        return float(torch.sigmoid(logits[0]))
    return float(torch.softmax(logits, -1)[1])


def export(model: Any, tokenizer: Any, task: str, folder: Path) -> None:
    """Write the files of a model, as optimum does; T5 with outputs for tokens by torch alone."""
    saved = folder / "torch"
    model.save_pretrained(saved)
    tokenizer.save_pretrained(saved)
    if task:
        main_export(str(saved), folder, task=task, do_validation=False)
    else:
        inputs = tokenizer("The bridge.", return_tensors="pt")
        names = ["input_ids", "attention_mask"]
        axes = {name: {0: "batch", 1: "tokens"} for name in (*names, "logits")}
        torch.onnx.export(
            model,
            tuple(inputs[name] for name in names),
            str(folder / "model.onnx"),
            input_names=names,
            output_names=["logits"],
            dynamic_axes=axes,
            dynamo=False,
        )
        model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    shutil.rmtree(saved)
    kept = {"config.json", "tokenizer.json", "tokenizer_config.json"}
    for path in folder.iterdir():
        if path.suffix != ".onnx" and path.name not in kept:
            path.unlink()


def main() -> None:
    """Write a folder for each known form, and the expected probabilities."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    expected = {}
    for name in sorted(FORMS):
        made: Callable[[], Made] = globals()[name.replace("-", "_")]
        torch.manual_seed(3)
        model, tokens, task, names = made()
        model.eval()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, **names)
        with torch.no_grad():
            expected[name] = [round(supported(name, model, tokenizer, *pair), 5) for pair in PAIRS]
        shutil.rmtree(folder / name, ignore_errors=True)
        export(model, tokenizer, task, folder / name)
        print(name, expected[name])
    content = {"pairs": PAIRS, "supported": expected}
    (folder / "expected.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
