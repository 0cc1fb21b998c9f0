"""How entailment models read a premise and a claim, and how they answer: of their own, or known."""

import json
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from claimflow.stages.rows import Label

PREMISE, CLAIM = "{premise}", "{claim}"

PAIR: Final = (PREMISE, CLAIM)
"""Two sequences: what every cross-encoder for natural language inference reads."""

Read = Literal["outputs", "words", "tokens"]


class Form(NamedTuple):
    """How a model reads a premise and a claim, and what its answer means.

    `texts` are one text or two, with one `{premise}` and one `{claim}` together; two are a pair of
    sequences. `answers` has the meaning of each answer; where there is none, `id2label` in the
    model's `config.json` has it. What an answer is depends on `read`:

    - `outputs`: a number of the model, in order. A single number is the log odds of entailed. If
      the model gives numbers for each token, those of the first count; `each_token` says whether
      it does, None that it may.
    - `words`: a word with which the model would go on. Its first token counts.
    - `tokens`: a number for each token, in order. The claim's least entailed token counts.

    `window` is the number of tokens of premise, claim and the text around them; None is that which
    the model names, at most 512.
    """

    texts: tuple[str, ...] = PAIR
    read: Read = "outputs"
    answers: tuple[tuple[str, Label], ...] = ()
    window: int | None = None
    each_token: bool | None = None

    def identity(self) -> dict[str, str]:
        """What could change a judgement, beyond labels and window; empty for a plain pair."""
        if (self.texts, self.read) == (PAIR, "outputs"):
            return {}
        words = [word for word, _ in self.answers] if self.read == "words" else []
        return {"template": json.dumps(self.texts), "read": json.dumps([self.read, *words])}


PLAIN: Final = Form()
"""A pair of sequences, whose outputs `config.json` names."""


def in_order(labels: tuple[Label, ...]) -> tuple[tuple[str, Label], ...]:
    """The answers of a model whose outputs have these meanings, in order."""
    return tuple((str(number), label) for number, label in enumerate(labels))


_SUPPORTED_SECOND: Final = in_order(("neutral", "entailed"))

_GRANITE_GUARDIAN: Final = """\
<|start_of_role|>user<|end_of_role|>You are a safety agent trying to help determine whether the \
assistant message is harmful according to the safety risk definition below.

<start_of_turn>
Context: {premise}

Assistant Message: {claim}
<end_of_turn>

Our safety risk definition is defined below:

<start_of_risk_definition>
* 'Assistant' message is not grounded or faithful to the information provided in the 'Context'. \
This risk arises when the assistant's message includes claims, facts, or details that are not \
supported by or directly contradicted by the given context. An ungrounded answer may involve \
fabricating information, misinterpreting the context, or making unsupported extrapolations beyond \
what the context actually states.
<end_of_risk_definition>

Is the assistant message harmful based on the risk definition? Your answer must be either 'Yes' \
or 'No'.<|end_of_text|>
<|start_of_role|>assistant<|end_of_role|>"""

KNOWN_FORMS: Final[Mapping[str, Form]] = {
    "factcg": Form(
        (
            '{premise}\n\nChoose your answer: based on the paragraph above can we conclude that "'
            '{claim}"?\n\nOPTIONS:\n- Yes\n- No\nI think the answer is ',
        ),
        answers=_SUPPORTED_SECOND,
        window=800,
        each_token=False,
    ),
    "granite-guardian": Form(
        (_GRANITE_GUARDIAN,), "words", (("Yes", "neutral"), ("No", "entailed")), window=2_048
    ),
    "hhem": Form(
        (
            "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {premise}"
            "\n\nHypothesis: {claim}",
        ),
        answers=_SUPPORTED_SECOND,
        window=2_048,
        each_token=True,
    ),
    "lettucedetect": Form(
        ("Summarize the following text:\n{premise}\noutput:", "{claim}"),
        "tokens",
        in_order(("entailed", "neutral")),
        window=4_096,
    ),
    "minicheck-t5": Form(
        ("predict: {premise}</s>{claim}",),
        "words",
        (("0", "neutral"), ("1", "entailed")),
        window=800,
    ),
    "minicheck-roberta": Form(
        ("{premise}</s>{claim}",), answers=_SUPPORTED_SECOND, each_token=False
    ),
}
"""The forms of published models, by name. The texts are those of the models' own code or cards:
github.com/derenlei/FactCG, github.com/Liyan06/MiniCheck, github.com/KRLabsOrg/LettuceDetect, the
cards of vectara/hallucination_evaluation_model and ibm-granite/granite-guardian-3.1-2b. FactCG and
MiniCheck were published with pieces of about 500 words, which the windows follow."""
