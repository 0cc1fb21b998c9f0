"""Short answers as statements, and pronouns that the question or the conversation resolves."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.claim_rules.decompose import (
    Completed,
    TextClaim,
    completed,
    decompose,
    take_apart,
)
from claimflow.stages.claim_rules.questions import Context, asked, short_answer
from tests.stages.parsing import PARSER

HISTORY = (
    ("user", "Who was Henrik Ibsen?"),
    ("assistant", "Henrik Ibsen was a Norwegian playwright. He wrote A Doll's House."),
)


def claims(
    question: str, text: str, *, history: tuple[tuple[str, str], ...] = (), fine: bool = False
) -> list[str]:
    """The claims of an answer, those that are ambiguous with what is unclear behind a bar."""
    found = decompose(
        text,
        atomicity="high" if fine else "low",
        parser=PARSER,
        coverage="high",
        context=Context(question, history),
    )
    return [one.claim + (f" | {one.ambiguous}" if one.ambiguous else "") for one in found]


@pytest.mark.parametrize(
    ("question", "answer", "statement"),
    [
        # Issue example, and other phrases that answer a question with a question word.
        (
            "Who was the first US president?",
            "Thomas Jefferson",
            "The first US president was Thomas Jefferson.",
        ),
        ("What is the capital of France?", "Paris.", "The capital of France is Paris."),
        ("Who is Ann?", "A painter", "Ann is a painter."),
        ("Who wrote Hamlet?", "Shakespeare", "Shakespeare wrote Hamlet."),
        ("who sang the song hello", "Adele", "Adele sang the song hello."),
        ("Where was Ann born?", "Oslo", "Ann was born in Oslo."),
        ("Where was Ann born?", "In Oslo.", "Ann was born in Oslo."),
        ("Where is the Eiffel Tower?", "Paris", "The Eiffel Tower is in Paris."),
        ("When was Python released?", "1991", "Python was released in 1991."),
        ("When was Ann born?", "May 5, 1990", "Ann was born on May 5, 1990."),
        # Yes and no.
        ("Is tin a metal?", "Yes.", "Tin is a metal."),
        ("Is tin a metal?", "No", "Tin is not a metal."),
        ("Isn't tin a metal?", "Yes", "Tin is a metal."),
        ("Has the law passed?", "no", "The law has not passed."),
        ("Did the war end in 1945?", "No.", "The war did not end in 1945."),
        ("Is it raining?", "Yes.", "It is raining."),
        # Where the grammar is not certain, the question is quoted.
        (
            "Did profits rise?",
            "Yes, by 5 percent.",
            'The answer to "Did profits rise?" is yes, by 5 percent.',
        ),
        (
            "Is the sun bigger than the moon?",
            "Yes",
            'The answer to "Is the sun bigger than the moon?" is yes.',
        ),
        ("Is it red or blue?", "Yes", 'The answer to "Is it red or blue?" is yes.'),
        (
            "How many moons does Mars have?",
            "Two.",
            'The answer to "How many moons does Mars have?" is two.',
        ),
        ("Can I return it?", "Sure.", 'The answer to "Can I return it?" is yes.'),
        ("Is breakfast included?", "**Yes**", "Breakfast is included."),
        ("Is breakfast included?", "Yes, of course!", "Breakfast is included."),
        ("Is breakfast included?", "Yes, it is.", "Breakfast is included."),
        (
            "Is breakfast included?",
            "Yes, if you booked it.",
            'The answer to "Is breakfast included?" is yes, if you booked it.',
        ),
        ("And in blue?", "No.", 'The answer to "And in blue?" is no.'),
        ("Must the fee be paid?", "No", 'The answer to "Must the fee be paid?" is no.'),
        ("Do all birds fly?", "No", 'The answer to "Do all birds fly?" is no.'),
        ("Do you ship it?", "We do.", 'The answer to "Do you ship it?" is We do.'),
        ("Where is my order?", "In Oslo", 'The answer to "Where is my order?" is in Oslo.'),
        (
            "Isn't the warranty valid for two years?",
            "Yes",
            'The answer to "Isn\'t the warranty valid for two years?" is yes.',
        ),
        ("What is the correct option?", "A", "The correct option is A."),
        ("What time is it open?", "9 am", 'The answer to "What time is it open?" is 9 am.'),
        (
            "Who discovered penicillin?",
            "Fleming, in 1928",
            'The answer to "Who discovered penicillin?" is Fleming, in 1928.',
        ),
        (
            'Who said "go"?',
            "Ann",
            'Ann said "go".',
        ),
        (
            "Who is the king of Norway married to?",
            "Sonja",
            'The answer to "Who is the king of Norway married to?" is Sonja.',
        ),
        (
            "Name the capital of France.",
            "Paris",
            'The answer to "Name the capital of France" is Paris.',
        ),
    ],
)
def test_a_short_answer_is_the_statement_that_it_makes(
    question: str, answer: str, statement: str
) -> None:
    assert claims(question, answer) == claims(question, answer, fine=True) == [statement]
    found = completed(answer, Context(question))
    assert found is not None
    assert found.text == statement


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("", "Oslo"),
        ("Write a poem about the sea.", "Roses"),
        ("Who killed Ann? And why?", "Bob"),
        ("Where was Ann born?", "She was born in Oslo."),
        ("Where was Ann born?", "I do not know."),
        ("Where was Ann born?", "..."),
        ("Where was Ann born?", "Where?"),
        ("Where was Ann born?", "Oslo " * 50),
        ("Where was Ann born?", "Thank you for asking"),
        ("What is x?", "x = 5"),
        ("Who do I call?", "Call Anna"),
        ("Is tin a metal?", "Right-wing parties say so"),
    ],
)
def test_other_texts_are_no_short_answers(question: str, answer: str) -> None:
    assert short_answer(asked(Context(question)), answer) is None
    assert completed(answer, Context(question)) is None


def test_a_long_question_is_not_quoted() -> None:
    assert claims("Is " + "very " * 100 + "tall Ann here?", "Oslo") == ["Oslo"]


def test_the_first_sentence_may_be_the_short_answer() -> None:
    question = "Did the war end in 1945?"
    assert claims(question, "No. It ended in 1944. Ann knew.") == [
        "The war did not end in 1945.",
        "The war ended in 1944.",
        "Ann knew.",
    ]
    assert completed("No. It ended in 1944.", Context(question)) == Completed(
        "The war did not end in 1945. It ended in 1944.", phrase=False
    )
    assert completed("Oslo", Context("Where was Ann born?")) == Completed(
        "Ann was born in Oslo.", phrase=True
    )
    assert claims(question, "No, it ended in 1944.") == [
        "The war did not end in 1945.",
        "The war ended in 1944.",
    ]
    assert claims(question, "Yes, it ended in 1945.") == ["The war ended in 1945."]
    assert claims("Where is the Eiffel Tower?", "Great question! In Paris. It is 300 m high.") == [
        "The Eiffel Tower is in Paris.",
        "The Eiffel Tower is 300 m high.",
    ]
    assert claims("Where is it?", "Oslo\nBergen is larger.")[0] == "Oslo"


SENTENCES = [
    ("What is our Q4 margin?", "The Q3 report mentions a margin of 38.6%."),
    ("Who painted Guernica?", "Guernica, painted by Pablo Picasso in 1937, hangs in Madrid."),
    ("What visas are needed?", "Visitors from the EU or Japan need neither a visa nor a permit."),
    ("How do I make pancakes?", "Whisk 200 g of flour with two eggs and milk."),
    ("How do vaccines work?", "We expose the immune system to a harmless form of a germ."),
    ("What is the refund period?", "Customers receive refunds within 14 days."),
    ("Wann wurde der Dom gebaut?", "Der Bau des Doms begann im Jahr 1248 und endete 1880."),
    ("Quand fut-elle construite?", "La tour Eiffel a été construite entre 1887 et 1889."),
    ("どこで寿司が生まれましたか?", "寿司は日本で生まれた料理であり、世界中で食べられています。"),
]


@pytest.mark.parametrize(("question", "sentence"), SENTENCES)
def test_a_sentence_as_answer_stays_as_it_is(question: str, sentence: str) -> None:
    assert claims(question, sentence) == [sentence]


def test_a_phrase_is_an_answer_however_long() -> None:
    question = "Who opened the bridge over the river?"
    phrase = "the president of the United States of America"
    assert claims(question, f"{phrase.capitalize()}.") != [f"{phrase.capitalize()}."]
    assert claims("Wann wurde der Dom gebaut?", "1248") == [
        'The answer to "Wann wurde der Dom gebaut?" is 1248.'
    ]


def test_the_last_word_of_a_question_with_be_is_its_predicate() -> None:
    assert claims("Is the device waterproof?", "Yes.") == ["The device is waterproof."]
    assert claims("Is the soup spicy?", "No.") == ["The soup is not spicy."]


def test_the_place_of_a_short_answer_is_that_of_its_words() -> None:
    text = "  Oslo. She left."
    found = take_apart(
        text,
        atomicity="high",
        coverage="high",
        context=Context("Where was Ann born?"),
        parser=PARSER,
    )
    assert isinstance(found[0], TextClaim)
    assert text[found[0].start : found[0].end] == "Oslo."


@pytest.mark.parametrize(
    ("question", "text", "last"),
    [
        ("Where was Ibsen born?", "He was born in Skien.", "Ibsen was born in Skien."),
        ("Who wrote Emma?", "Jane Austen. She was 39.", "Jane Austen was 39."),
        ("Who created Python?", "Guido van Rossum. He is Dutch.", "Guido van Rossum is Dutch."),
        ("Who heads Acme?", "The head of Acme is Ann Lee. She is 40.", "Ann Lee is 40."),
        ("", "Ann met Bob Lee in Oslo. It was cold.", "It was cold. | It"),
        ("", "The plant makes steel. It is located in Ohio.", "The plant is located in Ohio."),
        (
            "",
            "A fire blanket is a device. It consists of wool.",
            "A fire blanket consists of wool.",
        ),
        ("", "Ann is an actor. Her first film was Up.", "Ann's first film was Up."),
        ("", "Goethe wrote Faust. It was printed in 1808.", "Faust was printed in 1808."),
        ("", "Acme released Gadget. It grew in 1990.", "It grew in 1990. | It"),
        ("", "Ann and Eva met. They left Rome.", "Ann and Eva left Rome."),
        ("", "Ann was born in 1990. In 2010, she moved.", "In 2010, Ann moved."),
        ("", "The FA Cup is old. Since 1871, it is held.", "Since 1871, the FA Cup is held."),
        ("When did World War II end?", "In 1945. It began in 1939.", "World War II began in 1939."),
        ("Why did Rome fall?", "It fell because of wars.", "Rome fell because of wars."),
        ("Is Mercury bigger than Venus?", "No, it is smaller.", "Mercury is smaller."),
        ("When did Titanic sink?", "It sank in 1912.", "Titanic sank in 1912."),
        ("Is the device waterproof?", "It is new.", "The device is new."),
        ("Is my passport valid?", "It expired in May.", "My passport expired in May."),
        # Two could be meant, or none is named: it stays, and is marked.
        ("Is the lease valid for us?", "It is valid for one.", "It is valid for one. | It"),
        ("Which river is it?", "The Seine. It is long.", "It is long. | It"),
        ("Does the hotel have a pool?", "It is heated.", "It is heated. | It"),
        ("Is there parking?", "Yes. It costs 10 euros.", "It costs 10 euros. | It"),
        ("Where does Tom live?", "Vienna. He moved in 2010.", "Tom moved in 2010."),
        ("", "The company has a CEO. She is 40.", "She is 40. | She"),
        ("", "Anna called Maria. She was angry. She left.", "She left. | She"),
        ("", "Bob has a dog. It barks.", "It barks. | It"),
        ("", "Anna lives with her sister Eva. She left.", "She left. | She"),
        ("", "TCP is reliable, whereas UDP is not. It is fast.", "It is fast. | It"),
        ("", "Einstein moved to Princeton. It was 1933.", "It was 1933. | It"),
        ("", "Rust is a language. Mozilla developed it. It is fast.", "It is fast. | It"),
        ("", "Ann met Eva. She was ill.", "She was ill. | She"),
        ("", "Investors who sell may lose money. It is safe.", "It is safe. | It"),
        ("", "The council rejected the plan. It was too expensive.", "It was too expensive. | It"),
        ("", "Some firms hired some engineers. They left.", "They left. | They"),
        ("Who runs it?", "He has three children.", "He has three children. | He"),
        ("", "His daughter lives in Rome. He is old.", "He is old. | He"),
        # "It" that stands for nothing.
        ("", "The plant is old. It is important to check this.", "It is important to check this."),
        ("", "The plant is old. It is raining.", "It is raining."),
    ],
)
def test_a_subject_pronoun_is_resolved_where_one_thing_can_be_meant(
    question: str, text: str, last: str
) -> None:
    assert claims(question, text)[-1] == last
    assert claims(question, text, fine=True)[-1] == last


@pytest.mark.parametrize(
    ("question", "answer", "claim"),
    [
        ("Where was he born?", "Skien.", "Henrik Ibsen was born in Skien."),
        ("Did he move to Italy?", "Yes.", "Henrik Ibsen did move to Italy."),
        ("Was it good?", "Yes.", "A Doll's House was good."),
        ("What did he write?", "It was a play.", "It was a play. | It"),
        ("What about them?", "She was a nurse.", "She was a nurse. | She"),
    ],
)
def test_the_conversation_resolves_the_question(question: str, answer: str, claim: str) -> None:
    assert claims(question, answer, history=HISTORY) == [claim]


def test_a_question_with_two_candidates_before_it_is_left_as_it_is() -> None:
    told = (("user", "Who was Marie Curie married to?"), ("assistant", "Pierre Curie."))
    assert claims("When did he die?", "In 1906.", history=told) == [
        'The answer to "When did he die?" is in 1906.'
    ]
    told = (("user", "Tell me."), ("assistant", "Tom is a doctor. Ben is a teacher."))
    assert claims("Is he old?", "Yes.", history=told) == ["He is old. | He"]


@pytest.mark.parametrize(
    "text",
    [
        "Yes! Hope this helps!",
        "Yes\n\nThanks for asking!",
        "Yes 👍",
        "- Yes",
        "> Yes",
        "**Yes.** Bye!",
    ],
)
def test_a_yes_with_more_behind_it_stays(text: str) -> None:
    assert claims("Is tin a metal?", text)[0] == "Tin is a metal."


def test_no_and_yes_but_say_two_things() -> None:
    assert claims("Is tin a metal?", "No [1], tin is a gas.") == [
        "Tin is not a metal.",
        "Tin is a gas.",
    ]
    assert claims("Are pets allowed?", "Yes, but dogs must wear a leash.") == [
        "Pets are allowed.",
        "Dogs must wear a leash.",
    ]


def test_hostile_questions_and_answers_take_linear_time() -> None:
    hostile = (
        "is it " * 20_000,
        "no, " * 30_000,
        '"' * 100_000,
        "Ann, " * 20_000,
        "the the " * 9999,
    )
    begin = time.process_time()
    for text in hostile:
        for other in (text, "Who is Ann?", "Yes."):
            for question, answer in ((text, other), (other, text)):
                context = Context(question, (("user", text), ("assistant", text)))
                decompose(answer, atomicity="high", coverage="low", context=context, parser=PARSER)
    assert time.process_time() - begin < 60


@given(
    st.lists(
        st.sampled_from(
            ["Who", "Is", "Ann", "the", "war", "no", "Yes", ",", ".", "?", "born", "it"]
        ),
        max_size=8,
    ),
    st.lists(
        st.sampled_from(["No", "yes", "Ann", "it", "was", "the", ",", ".", "!", "- ", "\n", "by"]),
        max_size=8,
    ),
)
def test_claims_lie_in_the_text_and_are_sentences(question: list[str], answer: list[str]) -> None:
    text = " ".join(answer)
    for one in decompose(
        text,
        atomicity="high",
        coverage="high",
        context=Context(" ".join(question)),
        parser=PARSER,
    ):
        assert 0 <= one.start <= one.end <= len(text)
        assert one.claim.strip()


def test_a_greeting_before_the_answer_stays_one() -> None:
    found = take_apart(
        "Sure! Tin is a metal.",
        atomicity="low",
        coverage="high",
        context=Context("Is tin a metal?"),
    )
    assert [getattr(one, "kind", None) or one.claim for one in found] == [  # type: ignore[union-attr]
        "greeting",
        "Tin is a metal.",
    ]
