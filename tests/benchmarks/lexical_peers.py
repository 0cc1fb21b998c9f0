"""What other packages need for the measures of `lexical.py`, as far as they are installed.

None is a dependency of this project: pip install continuous-eval rouge-score nltk sacrebleu
"""

import atexit
import os
import shutil
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path

from stages.text.continuous_eval_words import ABBREVIATIONS, FIRST_WORDS
from stages.text.stopwords import ENGLISH

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
    """Its deterministic faithfulness, as published, with NLTK's Punkt and stop words.

    Only NLTK's data is ours, for it is on no package index: a corpus of stop words, which
    continuous-eval reads from its file for every sentence that it tokenizes, and what Punkt
    would have learnt of abbreviations and first words.
    """
    os.environ["CONTINUOUS_EVAL_DO_NOT_TRACK"] = "true"
    import nltk
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    learnt = PunktParameters()
    learnt.abbrev_types.update(ABBREVIATIONS)
    learnt.sent_starters.update(FIRST_WORDS)
    punkt = PunktSentenceTokenizer(learnt)
    nltk.tokenize._get_punkt_tokenizer = lambda _: punkt
    nltk.download = lambda *_, **__: True
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    stop_words = Path(folder, "corpora", "stopwords", "english")
    stop_words.parent.mkdir(parents=True)
    stop_words.write_text("\n".join(sorted(ENGLISH)) + "\n", encoding="utf-8")
    nltk.data.path[:] = [folder]
    from continuous_eval.metrics.generation.text import DeterministicFaithfulness

    metric = DeterministicFaithfulness()
    return lambda response, contexts: metric.compute(response, list(contexts))


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
