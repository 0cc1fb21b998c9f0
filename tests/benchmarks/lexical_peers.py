"""The measures of `lexical.py` by other packages, where these are installed.

None is a dependency of this project: `pip install continuous-eval rouge-score nltk sacrebleu` and,
for the tables that NLTK reads, `pip install --no-deps llama-index-core`.
"""

import importlib.util
import os
import types
from collections.abc import Callable, Sequence
from pathlib import Path

Work = Callable[[str, Sequence[str]], object]


def peers() -> dict[str, Work | str]:
    """By name, what a peer does with a response and its contexts, or why it is not there."""
    found: dict[str, Work | str] = {}
    for name, make in MAKERS.items():
        try:
            found[name] = make()
        except ImportError as error:
            found[name] = f"not installed ({error})"
    return found


def continuous_eval() -> Work:
    """Its deterministic faithfulness, as published, with NLTK's own Punkt and stop words.

    NLTK's data is on no package index of its own: llama-index-core carries it, and only that
    folder of it is read.
    """
    os.environ["CONTINUOUS_EVAL_DO_NOT_TRACK"] = "true"
    import nltk

    nltk.data.path[:] = [str(carried("llama_index") / "core" / "_static" / "nltk_cache")]
    nltk.download = lambda *_, **__: True
    from continuous_eval.metrics.generation.text import DeterministicFaithfulness

    metric = DeterministicFaithfulness()
    return lambda response, contexts: metric.compute(response, list(contexts))


def carried(package: str) -> Path:
    """The folder of an installed package, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"No module named {package!r}")
    return Path(next(iter(found.submodule_search_locations)))


def rouge_score() -> Work:
    """ROUGE-L of the whole response, on words between white space."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], tokenizer=types.SimpleNamespace(tokenize=str.split))
    return lambda response, contexts: scorer.score("\n".join(contexts), response)


def nltk_bleu() -> Work:
    """BLEU of the whole response on words."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    smooth = SmoothingFunction().method3
    return lambda response, contexts: sentence_bleu(
        ["\n".join(contexts).split()], response.split(), smoothing_function=smooth
    )


def sacrebleu() -> Work:
    """BLEU of the whole response on words."""
    from sacrebleu import sentence_bleu

    return lambda response, contexts: sentence_bleu(response, [" ".join(contexts)], tokenize="none")


def sacrebleu_chrf() -> Work:
    """Its chrF of the whole response."""
    from sacrebleu import sentence_chrf

    return lambda response, contexts: sentence_chrf(response, ["\n".join(contexts)])


MAKERS: dict[str, Callable[[], Work]] = {
    "continuous-eval: deterministic faithfulness": continuous_eval,
    "rouge-score: ROUGE-L of the response": rouge_score,
    "nltk: word BLEU of the response": nltk_bleu,
    "sacrebleu: word BLEU of the response": sacrebleu,
    "sacrebleu: chrF of the response": sacrebleu_chrf,
}
