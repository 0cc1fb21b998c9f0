"""Claims of texts, by a model that answers from a table and notes what it is asked."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.judging.claims import (
    ContextDecomposition,
    Decomposition,
    LlmClaim,
    ask_claims,
)
from claimflow.stages.rows import FailureKind
from claimflow.stages.tools import Failure, Form, Question, Reply

FORM = Form("{{texts}}", "texts", Decomposition, 1, keep_part=False)

Said = Mapping[str, Sequence[str] | Failure]


class FakeLlm:
    """Names the claims listed for a text; one that is not listed fails as `otherwise` says.

    The call of a reply has the name of its text.
    """

    def __init__(self, answer: Said, otherwise: FailureKind = "truncated") -> None:
        self.answer = answer
        self.otherwise = otherwise
        self.asked: list[list[Question]] = []

    def ask(self, questions: Sequence[Question], form: Form) -> dict[Question, Reply | Failure]:
        assert form is FORM
        self.asked.append(list(questions))
        return {question: self.reply(question.text) for question in questions}

    def reply(self, text: str) -> Reply | Failure:
        answer = self.answer.get(text, Failure(self.otherwise, f"no room for {text}"))
        if isinstance(answer, Failure):
            return answer
        return Reply(Decomposition(claims=list(answer)), f"call of {text}")


class OneReply:
    """A language model that has one reply to everything."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def ask(self, questions: Sequence[Question], form: Form) -> dict[Question, Reply | Failure]:
        assert form is FORM
        return dict.fromkeys(questions, self._reply)


def words(llm: FakeLlm, text: str) -> list[str] | Failure:
    named = ask_claims([Question(text)], FORM, llm)[Question(text)]
    return named if isinstance(named, Failure) else [claim.claim for claim in named]


def test_claims_once_each_in_the_order_of_the_model() -> None:
    llm = FakeLlm({"t": ["B b.", "A.", "B b.", " B\n\tb. "]})
    named = ask_claims([Question("t")], FORM, llm)
    assert named == {Question("t"): [LlmClaim("B b.", "call of t"), LlmClaim("A.", "call of t")]}


def test_white_space_is_folded_and_empty_claims_are_dropped() -> None:
    assert words(FakeLlm({"t": ["", " A \u00a0 b.\n", " \n"]}), "t") == ["A b."]
    assert words(FakeLlm({"t": []}), "t") == []


def test_distinct_texts_are_asked_in_one_request() -> None:
    llm = FakeLlm({"t": ["A."], "u": ["B."]})
    named = ask_claims(map(Question, ["t", "u", "t"]), FORM, llm)
    assert list(named) == [Question("t"), Question("u")]
    assert llm.asked == [[Question("t"), Question("u")]]


@pytest.mark.parametrize("kind", ["refused", "timeout", "invalid", "not_asked"])
def test_a_failure_is_passed_on_and_not_asked_again(kind: FailureKind) -> None:
    failure = Failure(kind, "why", "call")
    llm = FakeLlm({"One. Two.": failure})
    assert words(llm, "One. Two.") is failure
    assert len(llm.asked) == 1


@pytest.mark.parametrize("kind", ["truncated", "too_long"])
def test_a_truncated_reply_is_asked_again_in_halves(kind: FailureKind) -> None:
    llm = FakeLlm({"One. Two.": ["A.", "B."], "Six. Ten.": ["C.", "A."], "t": ["D."]}, kind)
    text = "One. Two. Six. Ten."
    named = ask_claims([Question(text), Question("t")], FORM, llm)
    assert named == {
        Question(text): [
            LlmClaim("A.", "call of One. Two."),
            LlmClaim("B.", "call of One. Two."),
            LlmClaim("C.", "call of Six. Ten."),
        ],
        Question("t"): [LlmClaim("D.", "call of t")],
    }
    assert llm.asked[1:] == [[Question("One. Two."), Question("Six. Ten.")]]


def test_a_sentence_too_long_for_the_model_is_cut_between_words() -> None:
    llm = FakeLlm({"one two": ["A."], "six ten": ["B."]}, otherwise="too_long")
    assert words(llm, "one two six ten") == ["A.", "B."]


def test_a_sentence_whose_claims_are_too_many_is_not_cut() -> None:
    llm = FakeLlm({"one two": ["A."], "six ten": ["B."]}, otherwise="truncated")
    assert words(llm, "one two six ten") == Failure("truncated", "no room for one two six ten")


def test_a_text_is_cut_into_sixteen_parts_at_most() -> None:
    sentences = [f"Part {letter} ends." for letter in "abcdefghijklmnop"]
    llm = FakeLlm({sentence: [sentence] for sentence in sentences})
    assert words(llm, " ".join(sentences)) == sentences
    assert [len(asked) for asked in llm.asked] == [1, 2, 4, 8, 16]

    twice = [f"{sentence} {sentence}" for sentence in sentences]
    llm = FakeLlm({sentence: [sentence] for sentence in sentences})
    assert words(llm, " ".join(twice)) == Failure("truncated", f"no room for {twice[0]}")
    assert len(llm.asked) == 5


def test_a_single_word_is_not_cut() -> None:
    llm = FakeLlm({})
    assert words(llm, " word ") == Failure("truncated", "no room for  word ")
    assert len(llm.asked) == 1


@pytest.mark.parametrize("part", ["One.", "Two."])
def test_a_part_that_fails_fails_the_text(part: str) -> None:
    refusal = Failure("refused", "no", "call")
    llm = FakeLlm({"One.": ["A."], "Two.": ["B."], part: refusal})
    assert words(llm, "One. Two.") is refusal


def test_texts_that_share_a_part_ask_for_it_once_at_a_time() -> None:
    llm = FakeLlm({"One.": ["A."], "Two.": ["B."], "Six.": ["C."]})
    named = ask_claims([Question("One. Two."), Question("One. Six.")], FORM, llm)
    assert named[Question("One. Six.")] == [
        LlmClaim("A.", "call of One."),
        LlmClaim("C.", "call of Six."),
    ]
    assert llm.asked[1] == [Question("One."), Question("Two."), Question("Six.")]


def test_one_text_in_two_contexts_is_two_questions_and_its_halves_keep_the_context() -> None:
    llm = FakeLlm({"One.": ["A."], "Two.": ["B."]})
    asked = [Question("One. Two.", "user: Who?"), Question("One.", "user: What?")]
    named = ask_claims(asked, FORM, llm)
    assert list(named) == asked
    assert llm.asked[1] == [Question("One.", "user: Who?"), Question("Two.", "user: Who?")]


def test_what_is_unclear_is_told_of_its_claim() -> None:
    answer = ContextDecomposition.model_validate(
        {
            "claims": ["He  left.", "Ann came.", "It rained there."],
            "unclear": [
                {"claim": "He left. ", "what": " He\n"},
                {"claim": "It rained there.", "what": "there " * 1000},
                {"claim": "It never came up.", "what": "It"},
                {"claim": "Ann came.", "what": ""},
                {"claim": ["Ann came."], "what": "Ann"},
                {"what": "Ann"},
                "Ann",
            ],
        }
    )
    named = ask_claims([Question("t")], FORM, OneReply(Reply(answer, "c")))[Question("t")]
    assert isinstance(named, list)
    assert [(one.claim, one.ambiguous) for one in named] == [
        ("He left.", "He"),
        ("Ann came.", None),
        ("It rained there.", ("there " * 1000)[:200]),
    ]


@pytest.mark.parametrize("remark", [None, "He", 7, {"claim": "He left.", "what": "He"}, [[]]])
def test_a_malformed_remark_loses_no_claim(remark: object) -> None:
    answer = ContextDecomposition.model_validate({"claims": ["He left."], "unclear": remark})
    assert (answer.claims, answer.unclear) == (["He left."], [])


@given(st.lists(st.sampled_from(["Ann.", "Bob ran.", "Cy sat still."]), min_size=1, max_size=6))
def test_a_text_in_parts_has_the_claims_of_its_sentences(sentences: list[str]) -> None:
    llm = FakeLlm({sentence: [sentence] for sentence in sentences})
    assert words(llm, " ".join(sentences)) == list(dict.fromkeys(sentences))
