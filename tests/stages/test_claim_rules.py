"""Decomposition by rules: the documented examples, and sentences of the same structure."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimflow.stages.claim_rules.decompose import Extent, decompose
from tests.stages.parsing import PARSER

EINSTEIN = (
    "Albert Einstein was a German theoretical physicist who developed the theory of relativity "
    "and contributed to quantum mechanics."
)
CURIE = (
    "Marie Curie was a Polish and naturalized-French physicist and chemist who conducted "
    "pioneering research on radioactivity."
)
BABBAGE = (
    "Charles Babbage was an English mathematician, philosopher, inventor, and mechanical engineer."
)
EXTENTS: tuple[Extent, ...] = ("low", "high")


def claims(text: str, atomicity: Extent = "high", coverage: Extent = "high") -> list[str]:
    return [
        claim.claim
        for claim in decompose(text, atomicity=atomicity, coverage=coverage, parser=PARSER)
    ]


@pytest.mark.parametrize("coverage", EXTENTS)
def test_einstein(coverage: Extent) -> None:
    assert claims(EINSTEIN, "low", coverage) == [EINSTEIN]
    assert claims(EINSTEIN, "high", coverage) == [
        "Albert Einstein was a German theoretical physicist.",
        "Albert Einstein developed the theory of relativity.",
        "Albert Einstein contributed to quantum mechanics.",
    ]


def test_curie() -> None:
    assert claims(CURIE, "high", "high") == [
        "Marie Curie was a Polish physicist.",
        "Marie Curie was a naturalized-French physicist.",
        "Marie Curie was a chemist.",
        "Marie Curie conducted pioneering research on radioactivity.",
    ]
    assert claims(CURIE, "high", "low") == [
        "Marie Curie was a physicist.",
        "Marie Curie conducted research on radioactivity.",
    ]
    assert claims(CURIE, "low", "high") == [CURIE]
    assert claims(CURIE, "low", "low") == [
        "Marie Curie was a physicist who conducted research on radioactivity."
    ]


def test_babbage() -> None:
    assert claims(BABBAGE, "high", "high") == [
        "Charles Babbage was an English mathematician.",
        "Charles Babbage was a philosopher.",
        "Charles Babbage was an inventor.",
        "Charles Babbage was a mechanical engineer.",
    ]
    assert claims(BABBAGE, "high", "low") == [
        "Charles Babbage was an English mathematician.",
        "Charles Babbage was an inventor.",
    ]
    assert claims(BABBAGE, "low", "low") == [
        "Charles Babbage was an English mathematician and an inventor."
    ]


SPLIT = [
    (
        "She heard the men and realized that they were coming for her.",
        ["She heard the men.", "She realized that they were coming for her."],
    ),
    (
        'The album contains "Rain and Fire" and "Stone and Sand".',
        ['The album contains "Rain and Fire".', 'The album contains "Stone and Sand".'],
    ),
    (
        '"Feel the Noise" was written by Ann Lee and produced by "Chas".',
        ['"Feel the Noise" was written by Ann Lee.', '"Feel the Noise" was produced by "Chas".'],
    ),
    (
        "The recipe needs flour, sugar, and eggs.",
        ["The recipe needs flour.", "The recipe needs sugar.", "The recipe needs eggs."],
    ),
    (
        "The river is 3.14 km wide and 2.5 m deep.",
        ["The river is 3.14 km wide.", "The river is 2.5 m deep."],
    ),
    (
        "She has worked with other artists, such as John Legend and Eric Nam.",
        [
            "She has worked with other artists.",
            "John Legend is an artist.",
            "Eric Nam is an artist.",
            "She has worked with John Legend.",
            "She has worked with Eric Nam.",
        ],
    ),
    (
        "Berg led the club until 1990, becoming its first president.",
        ["Berg led the club until 1990.", "Berg became its first president."],
    ),
    (
        "Snow is white because it scatters light.",
        ["Snow is white because it scatters light.", "It scatters light."],
    ),
    (
        "Middlemarch, a novel written by Eliot, appeared in 1871.",
        ["Middlemarch appeared in 1871.", "Middlemarch was a novel written by Eliot."],
    ),
    (
        "He is best known for his single, which sold well and was nominated for a prize.",
        [
            "He is best known for his single.",
            "His single sold well.",
            "His single was nominated for a prize.",
        ],
    ),
    (
        "She won prizes, such as the Abel Prize and the Wolf Prize.",
        ["She won prizes.", "She won the Abel Prize.", "She won the Wolf Prize."],
    ),
    (
        "Keita is a game developer from Japan.",
        ["Keita is a game developer.", "Keita is from Japan."],
    ),
    (
        "Iron is a metal, while sulfur is not.",
        ["Iron is a metal.", "Sulfur is not."],
    ),
    (
        "She made her debut with the Minnesota Twins on 27 August 2009.",
        [
            "She made her debut with the Minnesota Twins.",
            "She made her debut on 27 August 2009.",
        ],
    ),
    (
        "Ada Lovelace was a British mathematician who translated a paper and published an "
        "algorithm.",
        [
            "Ada Lovelace was a British mathematician.",
            "Ada Lovelace translated a paper.",
            "Ada Lovelace published an algorithm.",
        ],
    ),
    (
        "Frida Kahlo was a Mexican painter whose self-portraits are in many museums.",
        [
            "Frida Kahlo was a Mexican painter.",
            "Frida Kahlo's self-portraits are in many museums.",
        ],
    ),
    (
        "Nikola Tesla was born in Smiljan and died in New York.",
        ["Nikola Tesla was born in Smiljan.", "Nikola Tesla died in New York."],
    ),
    (
        "Wangari Maathai was a Kenyan activist and politician who founded the Green Belt Movement.",
        [
            "Wangari Maathai was a Kenyan activist.",
            "Wangari Maathai was a politician.",
            "Wangari Maathai founded the Green Belt Movement.",
        ],
    ),
    (
        "Leonardo da Vinci was an Italian painter, engineer, and anatomist.",
        [
            "Leonardo da Vinci was an Italian painter.",
            "Leonardo da Vinci was an engineer.",
            "Leonardo da Vinci was an anatomist.",
        ],
    ),
    (
        "Paris, the capital of France, lies on the Seine.",
        ["Paris lies on the Seine.", "Paris is the capital of France."],
    ),
    (
        "Clara Schumann, a German pianist and composer, toured Europe and taught in Frankfurt.",
        [
            "Clara Schumann toured Europe.",
            "Clara Schumann was a German pianist.",
            "Clara Schumann was a composer.",
            "Clara Schumann taught in Frankfurt.",
        ],
    ),
    (
        "Grace Hopper, who was born in New York, wrote a compiler and served in the Navy.",
        [
            "Grace Hopper wrote a compiler.",
            "Grace Hopper was born in New York.",
            "Grace Hopper served in the Navy.",
        ],
    ),
    (
        "The film was directed by John Ford and produced by Walter Wanger.",
        ["The film was directed by John Ford.", "The film was produced by Walter Wanger."],
    ),
    (
        "He designed and built the first bicycle.",
        ["He designed the first bicycle.", "He built the first bicycle."],
    ),
    (
        "The observatory was founded by Anna Berg, the head of the academy.",
        [
            "The observatory was founded by Anna Berg.",
            "Anna Berg was the head of the academy.",
        ],
    ),
    (
        "The telescope was sold to the Kepler Institute, which has moved it to Chile.",
        [
            "The telescope was sold to the Kepler Institute.",
            "The Kepler Institute has moved it to Chile.",
        ],
    ),
    (
        "Lagos is a city that lies on the Gulf of Guinea and has a large harbour.",
        [
            "Lagos is a city.",
            "Lagos lies on the Gulf of Guinea.",
            "Lagos has a large harbour.",
        ],
    ),
    (
        "Middlemarch is a novel written by George Eliot and published in 1871.",
        [
            "Middlemarch is a novel.",
            "Middlemarch was written by George Eliot.",
            "Middlemarch was published in 1871.",
        ],
    ),
    (
        "The Lynx are a team based in Oslo.",
        ["The Lynx are a team.", "The Lynx are based in Oslo."],
    ),
    (
        "Lowe was known for his hats and liked to sing.",
        ["Lowe was known for his hats.", "Lowe liked to sing."],
    ),
    (
        "The war ended in 1945, and the two states signed a treaty.",
        ["The war ended in 1945.", "The two states signed a treaty."],
    ),
    (
        "The reactor stopped at noon; the engineers started it again.",
        ["The reactor stopped at noon.", "The engineers started it again."],
    ),
    (
        "Rosa Vega has taught at Harvard, has edited two journals, and has received three prizes.",
        [
            "Rosa Vega has taught at Harvard.",
            "Rosa Vega has edited two journals.",
            "Rosa Vega has received three prizes.",
        ],
    ),
    (
        "Chinua Achebe was a Nigerian novelist, poet and critic who wrote Things Fall Apart.",
        [
            "Chinua Achebe was a Nigerian novelist.",
            "Chinua Achebe was a poet.",
            "Chinua Achebe was a critic.",
            "Chinua Achebe wrote Things Fall Apart.",
        ],
    ),
    (
        "She won both the cup and the league in 1999.",
        ["She won the cup in 1999.", "She won the league in 1999."],
    ),
    (
        "Ann is one of the most gifted and famous poets in Norway.",
        [
            "Ann is one of the most gifted poets in Norway.",
            "Ann is one of the most famous poets in Norway.",
        ],
    ),
    ("She was both a poet and a painter.", ["She was a poet.", "She was a painter."]),
    (
        "She both wrote and directed the film.",
        ["She wrote the film.", "She directed the film."],
    ),
    (
        "He has both sung and danced in Paris.",
        ["He has sung in Paris.", "He has danced in Paris."],
    ),
    (
        "Bo Lind is a Danish actor and film producer.",
        ["Bo Lind is a Danish actor.", "Bo Lind is a film producer."],
    ),
    (
        "Ann Lee is a professor of law at Yale University in New Haven.",
        [
            "Ann Lee is a professor of law.",
            "Ann Lee is a professor at Yale University in New Haven.",
        ],
    ),
    (
        "Vire is a commune in the Calvados department in the region of Normandy.",
        [
            "Vire is a commune in the Calvados department.",
            "Vire is in the region of Normandy.",
        ],
    ),
    (
        "Bo Lind became a critic who wrote for many papers.",
        ["Bo Lind became a critic.", "Bo Lind wrote for many papers."],
    ),
    (
        "He is a respected singer, having founded the choir in 1998.",
        ["He is a respected singer.", "He founded the choir in 1998."],
    ),
    (
        "The port handled two million tons in 2010, making it the largest port in Norway.",
        [
            "The port handled two million tons in 2010.",
            "The port was the largest port in Norway.",
        ],
    ),
    (
        "The son of Hugo Lind (born 1951) plays the cello.",
        ["The son of Hugo Lind plays the cello.", "Hugo Lind was born 1951."],
    ),
    (
        "Members include Ann Lee (born 1951), Bo Berg (born 1960) and Karl Lind.",
        [
            "Members include Ann Lee, Bo Berg and Karl Lind.",
            "Ann Lee was born 1951.",
            "Bo Berg was born 1960.",
        ],
    ),
    (
        "She is an assistant professor of physics at Yale University.",
        [
            "She is an assistant professor of physics.",
            "She is an assistant professor at Yale University.",
        ],
    ),
    (
        "The tower was struck by lightning and partly destroyed, rebuilt in 1760 and demolished "
        "in 1901.",
        [
            "The tower was struck by lightning.",
            "The tower was partly destroyed.",
            "The tower was rebuilt in 1760.",
            "The tower was demolished in 1901.",
        ],
    ),
    (
        "The record was held by a sniper, Craig Hall, who made a shot in 2009.",
        [
            "The record was held by a sniper.",
            "The sniper was Craig Hall.",
            "The sniper made a shot in 2009.",
        ],
    ),
    (
        "Side effects may include headache and usually resolve within a few days.",
        [
            "Side effects may include headache.",
            "Side effects usually resolve within a few days.",
        ],
    ),
    (
        "She worked for various newspapers and magazines.",
        ["She worked for various newspapers.", "She worked for various magazines."],
    ),
    (
        "She is a co-owner of a studio called Red Door.",
        ["She is a co-owner of a studio.", "The studio is called Red Door."],
    ),
    (
        "Bo studied law at the University of Leeds, where he met Ann.",
        ["Bo studied law at the University of Leeds.", "Bo met Ann at the University of Leeds."],
    ),
    (
        "He has released two albums (EPs) and twelve singles.",
        ["He has released two albums (EPs).", "He has released twelve singles."],
    ),
    (
        "Firms advertise to create demand and to influence people.",
        ["Firms advertise to create demand.", "Firms advertise to influence people."],
    ),
    (
        "He moved to Oslo in 1990.",
        ["He moved to Oslo.", "He moved in 1990."],
    ),
    (
        "Hicks has also starred in several films, including A Bronx Tale (1993), New Jersey Drive "
        "(1995), and Kingdom Come (2001).",
        [
            "Hicks has also starred in several films.",
            "A Bronx Tale is a film.",
            "New Jersey Drive is a film.",
            "Kingdom Come is a film.",
            "Hicks has also starred in A Bronx Tale (1993).",
            "Hicks has also starred in New Jersey Drive (1995).",
            "Hicks has also starred in Kingdom Come (2001).",
        ],
    ),
    (
        "Hugo Lind (born 3 May 1951 in Lund) is a Swedish cellist.",
        [
            "Hugo Lind is a Swedish cellist.",
            "Hugo Lind was born 3 May 1951.",
            "Hugo Lind was born in Lund.",
        ],
    ),
    (
        "In 1902, she opened a school and then wrote a grammar.",
        ["In 1902, she opened a school.", "She then wrote a grammar."],
    ),
    (
        "Einstein was born in 1879 in Germany.",
        ["Einstein was born in 1879.", "Einstein was born in Germany."],
    ),
    (
        "Bo Ek died in Rome in 1903.",
        ["Bo Ek died in Rome.", "Bo Ek died in 1903."],
    ),
    (
        "He wrote plays or films and lived in Rome.",
        ["He wrote plays or films.", "He lived in Rome."],
    ),
    (
        "Photosynthesis converts light into energy and produces oxygen.",
        ["Photosynthesis converts light into energy.", "Photosynthesis produces oxygen."],
    ),
    (
        "Water boils at 100 °C and freezes at 0 °C.",
        ["Water boils at 100 °C.", "Water freezes at 0 °C."],
    ),
    (
        "Mice and rats carry fleas and eat corn.",
        ["Mice and rats carry fleas.", "Mice and rats eat corn."],
    ),
    (
        "The road runs between Oslo and Bergen and crosses a plateau.",
        ["The road runs between Oslo and Bergen.", "The road crosses a plateau."],
    ),
    (
        "Tim Cook is the chairman and head of the board.",
        ["Tim Cook is the chairman of the board.", "Tim Cook is the head of the board."],
    ),
    (
        "The fair took place in May 1990 at the new wing of the Oslo Trade and Conference Centre.",
        [
            "The fair took place in May 1990.",
            "The fair took place at the new wing of the Oslo Trade and Conference Centre.",
        ],
    ),
    (
        "After the war, he moved into politics, taking charge of the harbour in 1988.",
        [
            "After the war, he moved into politics.",
            "He took charge of the harbour in 1988.",
        ],
    ),
    (
        "She praised the singer's voice, courage and patience.",
        [
            "She praised the singer's voice.",
            "She praised the singer's courage.",
            "She praised the singer's patience.",
        ],
    ),
    (
        "The story comes from the Greek historian Ctesias, who wrote about the unicorn.",
        [
            "The story comes from the Greek historian Ctesias.",
            "The Greek historian Ctesias wrote about the unicorn.",
        ],
    ),
    (
        "Bo Lind was born in Quebec City, Quebec, Canada, and raised in Ottawa, Ontario.",
        [
            "Bo Lind was born in Quebec City, Quebec, Canada.",
            "Bo Lind was raised in Ottawa, Ontario.",
        ],
    ),
    (
        "Armstrong was named to the team in 2002 and named a legend in 2005.",
        ["Armstrong was named to the team in 2002.", "Armstrong was named a legend in 2005."],
    ),
    (
        "World War One began on July 28, 1914 and ended on November 11, 1918.",
        [
            "World War One began on July 28, 1914.",
            "World War One ended on November 11, 1918.",
        ],
    ),
    (
        "He is known for his good looks and charming personality.",
        [
            "He is known for his good looks.",
            "He is known for his charming personality.",
        ],
    ),
    (
        'She has acted in several popular Korean dramas, such as "Dream High" and "Del Luna".',
        [
            "She has acted in several popular Korean dramas.",
            '"Dream High" is a popular Korean drama.',
            '"Del Luna" is a popular Korean drama.',
            'She has acted in "Dream High".',
            'She has acted in "Del Luna".',
        ],
    ),
    (
        "She appeared in films such as The End of Summer (1954).",
        [
            "She appeared in films.",
            "The End of Summer is a film.",
            "She appeared in The End of Summer (1954).",
        ],
    ),
    (
        "The winner of the match was Edge, who held the title until May.",
        [
            "The winner of the match was Edge.",
            "Edge held the title until May.",
        ],
    ),
    (
        "Ann Lee is a Democrat who was elected in 1990.",
        [
            "Ann Lee is a Democrat.",
            "Ann Lee was elected in 1990.",
        ],
    ),
    (
        "She starred in films such as Vertigo and Gilda.",
        [
            "She starred in films.",
            "Vertigo is a film.",
            "Gilda is a film.",
            "She starred in Vertigo.",
            "She starred in Gilda.",
        ],
    ),
    (
        "It is popular, especially in countries such as France and Spain.",
        [
            "It is popular, especially in countries.",
            "France is a country.",
            "Spain is a country.",
            "It is popular, especially in France.",
            "It is popular, especially in Spain.",
        ],
    ),
    (
        "There have been only four holders, so it is difficult to tell.",
        [
            "There have been only four holders.",
            "It is difficult to tell.",
        ],
    ),
    (
        "She won the Abel Prize and the Wolf Prize.",
        [
            "She won the Abel Prize.",
            "She won the Wolf Prize.",
        ],
    ),
    (
        "He was born and raised in Oslo and began to sing in 1990.",
        [
            "He was born in Oslo.",
            "He was raised in Oslo.",
            "He began to sing in 1990.",
        ],
    ),
    (
        "He was sued for fraud and breach of contract.",
        [
            "He was sued for fraud.",
            "He was sued for breach of contract.",
        ],
    ),
    (
        "Song Kang is a South Korean actor born on April 23, 1994.",
        [
            "Song Kang is a South Korean actor.",
            "Song Kang was born on April 23, 1994.",
        ],
    ),
    (
        "She was born in Oslo and raised three children.",
        ["She was born in Oslo.", "She raised three children."],
    ),
    (
        "The show was hosted by Ann Lee and dealt with sports.",
        [
            "The show was hosted by Ann Lee.",
            "The show dealt with sports.",
        ],
    ),
    (
        "Ann Lee was also a singer and published two books.",
        [
            "Ann Lee was also a singer.",
            "Ann Lee published two books.",
        ],
    ),
    (
        "They captured and sold the ship, and divided the gold.",
        [
            "They captured the ship.",
            "They sold the ship.",
            "They divided the gold.",
        ],
    ),
    (
        "The game was released for Vista 4, Orbit One, and Windows.",
        [
            "The game was released for Vista 4.",
            "The game was released for Orbit One.",
            "The game was released for Windows.",
        ],
    ),
    (
        "The law is believed to protect tenants and can help small towns.",
        [
            "The law is believed to protect tenants.",
            "The law can help small towns.",
        ],
    ),
    (
        "The poem was written by the American poet Mary Oliver in 1995.",
        [
            "The poem was written by the American poet Mary Oliver.",
            "The poem was written in 1995.",
        ],
    ),
    (
        "It was led by Jean-Pierre Laval, the mayor of Lyon.",
        [
            "It was led by Jean-Pierre Laval.",
            "Jean-Pierre Laval was the mayor of Lyon.",
        ],
    ),
    (
        "Born in Kyoto, Emi Sato studied law in Tokyo.",
        ["Emi Sato was born in Kyoto.", "Emi Sato studied law in Tokyo."],
    ),
    (
        "However, the valley is dry but gets snow in January.",
        ["The valley is dry.", "The valley gets snow in January."],
    ),
    (
        'The band wrote "Love and War" and released it in 1990.',
        ['The band wrote "Love and War".', "The band released it in 1990."],
    ),
    (
        "Firms advertise to create trust and loyalty, to influence clients, to provide information "
        "about products, to maintain or increase market share, and to create fame.",
        [
            "Firms advertise to create trust.",
            "Firms advertise to create loyalty.",
            "Firms advertise to influence clients.",
            "Firms advertise to provide information about products.",
            "Firms advertise to maintain or increase market share.",
            "Firms advertise to create fame.",
        ],
    ),
    (
        "Meals can be paid in cash or by card.",
        [
            "Meals can be paid in cash.",
            "Meals can be paid by card.",
        ],
    ),
    (
        "Water can be found on Earth, Venus and Mars, but not on the Sun.",
        [
            "Water can be found on Earth.",
            "Water can be found on Venus.",
            "Water can be found on Mars.",
            "Water cannot be found on the Sun.",
        ],
    ),
    (
        "Mars and Venus are both planets with a crust.",
        [
            "Mars is a planet with a crust.",
            "Venus is a planet with a crust.",
        ],
    ),
    (
        "Cats and dogs are popular pets.",
        [
            "Cats are popular pets.",
            "Dogs are popular pets.",
        ],
    ),
    (
        "A star's size and age are all determined by its mass.",
        [
            "A star's size is determined by its mass.",
            "A star's age is determined by its mass.",
        ],
    ),
    (
        "Ann Lee built a mill that grinds corn.",
        [
            "Ann Lee built a mill.",
            "The mill grinds corn.",
        ],
    ),
    (
        "Bob was married and had two sons.",
        [
            "Bob was married.",
            "Bob had two sons.",
        ],
    ),
    (
        "He was nominated but lost.",
        [
            "He was nominated.",
            "He lost.",
        ],
    ),
    (
        "The town lies on the N2 road which connects it to Rome.",
        [
            "The town lies on the N2 road.",
            "The N2 road connects it to Rome.",
        ],
    ),
    (
        "The company is headed by Ann Lee who is an engineer.",
        [
            "The company is headed by Ann Lee.",
            "Ann Lee is an engineer.",
        ],
    ),
    (
        "The film was a success, with sales reaching two million in 2010.",
        [
            "The film was a success.",
            "Sales reached two million in 2010.",
        ],
    ),
    (
        "Lee directed a film, which she also wrote and starred in.",
        [
            "Lee directed a film.",
            "Lee also wrote the film.",
            "Lee starred in the film.",
        ],
    ),
    (
        "One writer who has lived in Rome is Ann Lee.",
        [
            "Ann Lee is a writer.",
            "Ann Lee has lived in Rome.",
        ],
    ),
    (
        "Lee moved to Rome in 1986, when she won a prize.",
        [
            "Lee moved to Rome.",
            "Lee moved in 1986.",
            "She won a prize in 1986.",
        ],
    ),
    (
        "She taught art, law and order, and trade.",
        [
            "She taught art.",
            "She taught law and order.",
            "She taught trade.",
        ],
    ),
    (
        "The song was written by Ann B. Lee and Joe Young.",
        [
            "The song was written by Ann B. Lee.",
            "The song was written by Joe Young.",
        ],
    ),
    (
        "It sells bags, shoes, and more.",
        [
            "It sells bags.",
            "It sells shoes.",
        ],
    ),
    (
        "Lee served as the chair for the city council in 1990.",
        [
            "Lee served as the chair for the city council.",
            "Lee served in 1990.",
        ],
    ),
    (
        "The band toured in 1990, with Ann on drums.",
        [
            "The band toured in 1990.",
            "The band toured with Ann on drums.",
        ],
    ),
    (
        "The report says that the city has parks and museums.",
        [
            "The report says that the city has parks.",
            "The report says that the city has museums.",
        ],
    ),
    (
        "He toured Europe, performing concerts and giving lessons.",
        [
            "He toured Europe.",
            "He performed concerts.",
            "He gave lessons.",
        ],
    ),
    (
        "The city farthest from the sea is Coventry, located in England.",
        [
            "The city farthest from the sea is Coventry.",
            "Coventry is located in England.",
        ],
    ),
    (
        "The fins, which help control the board, are made of plastic.",
        [
            "The fins are made of plastic.",
            "The fins help control the board.",
        ],
    ),
    (
        "Lee holds a bachelor's degree in law from Yale and a doctorate in art from Rome.",
        [
            "Lee holds a bachelor's degree in law from Yale.",
            "Lee holds a doctorate in art from Rome.",
        ],
    ),
    (
        "Lee's albums are: Spell & Call, Violator, and Songs of Faith.",
        [
            "Spell & Call is an album of Lee.",
            "Violator is an album of Lee.",
            "Songs of Faith is an album of Lee.",
        ],
    ),
    (
        "The three largest towns were: Rome, Bari, and Pisa.",
        [
            "Rome was one of the three largest towns.",
            "Bari was one of the three largest towns.",
            "Pisa was one of the three largest towns.",
        ],
    ),
    (
        "The bands were: Ala, Bora, and Cora.",
        [
            "Ala was one of the bands.",
            "Bora was one of the bands.",
            "Cora was one of the bands.",
        ],
    ),
]


QUOTATIONS = [
    # A parser reads a name in place of a quotation.
    (
        'Bo wrote "Red Sun" in 1990, and the firm Alpha/Omega sold it in Rome.',
        ['Bo wrote "Red Sun" in 1990.', "The firm Alpha/Omega sold it in Rome."],
    ),
    (
        'Bo wrote "Red Sun" in 1990, and Alpha-Centauri was sold by Ann.',
        ['Bo wrote "Red Sun" in 1990.', "Alpha-Centauri was sold by Ann."],
    ),
    # Marks that belong to no quotation: the sentence stays whole.
    *(
        (sentence, [sentence])
        for sentence in (
            "Ann got “A”s and Bo got “B”s in 1990, and both sang in Rome.",
            'Bo has a 27"monitor and a 32"TV, and Ann has a laptop.',
            'Jo wrote "Red"and "Blue"in 1990 and sang in Rome.',
        )
    ),
]

MARKS = [
    # Marks that are no markup.
    ("The area is πr**2.", "The area is πr**2."),
    ("It is x**n of **many**.", "It is x**n of many."),
    ("The value of a[0] is 5 [1].", "The value of a[0] is 5."),
]


@pytest.mark.parametrize(("sentence", "expected"), QUOTATIONS)
def test_a_quotation_stays_what_it_is(sentence: str, expected: list[str]) -> None:
    assert claims(sentence) == expected


@pytest.mark.parametrize(("sentence", "expected"), MARKS)
@pytest.mark.parametrize("atomicity", EXTENTS)
def test_powers_and_indices_are_no_markup(sentence: str, expected: str, atomicity: Extent) -> None:
    assert claims(sentence, atomicity) == [expected]


SHARED = [
    # What one part says of another holds for what is split off.
    (
        "They may have visited Rome and met the Pope.",
        ["They may have visited Rome.", "They may have met the Pope."],
    ),
    (
        "The suspect might have entered the house and stolen the ring.",
        ["The suspect might have entered the house.", "The suspect might have stolen the ring."],
    ),
    (
        "Sofia joined a big firm before founding Berg Labs in 2001.",
        ["Sofia joined a big firm.", "Sofia founded Berg Labs in 2001."],
    ),
    (
        "The building was damaged in 1943 but was not destroyed, and was repaired by 1956.",
        [
            "The building was damaged in 1943.",
            "The building was not destroyed.",
            "The building was repaired by 1956.",
        ],
    ),
    (
        "The cathedral was begun in 1248, abandoned in 1560, and completed in 1880.",
        [
            "The cathedral was begun in 1248.",
            "The cathedral was abandoned in 1560.",
            "The cathedral was completed in 1880.",
        ],
    ),
    (
        "Founded in 1867, the company may be sold.",
        ["The company was founded in 1867.", "The company may be sold."],
    ),
]

UNDIVIDED = [
    # A condition, a hypothesis, a frame.
    "Taken with food, the drug may cause nausea.",
    "Kept in the dark, the wine lasts ten years.",
    "Once opened, the sauce keeps for a week in the fridge.",
    "Left untreated, the infection can spread and kill the patient.",
    "Had the bolts been tightened, the bridge would have held and the town would be safe.",
    "Were prices to fall, farmers would suffer and shops would close.",
    "In the novel, Anna leaves her husband and moves to Rome.",
    "In theory, the engine is quiet and uses no oil.",
    # Members that are true together only.
    "She starred in Romeo and Juliet, War and Peace, and Pride and Prejudice.",
    "A Negroni contains equal parts of gin, Campari and sweet vermouth.",
    "The museum is open daily except on Mondays and public holidays.",
    "Plants convert carbon dioxide and water into glucose and oxygen.",
    "The alloy contains 70% copper and 30% zinc, making it brass.",
    # What hangs on another word than the one before it.
    "The canal was nationalised by Nasser in 1956, which led to the Suez Crisis.",
    "He met John Hale, later his biographer, at Sandhurst.",
]


@pytest.mark.parametrize(("sentence", "expected"), SHARED)
def test_what_is_split_off_keeps_what_holds_for_it(sentence: str, expected: list[str]) -> None:
    assert claims(sentence) == expected


@pytest.mark.parametrize("sentence", UNDIVIDED)
def test_what_holds_together_only_stays_whole(sentence: str) -> None:
    assert claims(sentence) == [sentence]


@pytest.mark.parametrize(("sentence", "expected"), SPLIT)
def test_coordinations_and_parentheticals_are_split(sentence: str, expected: list[str]) -> None:
    assert claims(sentence) == expected
    assert claims(sentence, "low", "high") == [sentence]


WHOLE = [
    "The President knows that the people of Earth have not witnessed a death in years, and that "
    "the last time it was seen all the witnesses went insane.",
    "Lee signed a record 5-year contract worth $201 million in 2017, starting with $34,682,550 in "
    "the 2017-18 season and ending with the largest earnings in the 2021-22 season with a record "
    "payout of $45,780,966.",
    "The Queen, also known as the Wicked Queen, and sometimes instead identified by her given name "
    "as Queen Grim, is a fictional character who appears in a film.",
    "This song forecasts destruction for the Axis powers, particularly Japan.",
    "It was recorded by Irish actor and singer Richard Harris.",
    "She is a professor of law and judge.",
    "They share the prison, but when Rick tries to flee, one of the prisoners, tries to kill Rick.",
    "The statue stands on Lund's Island (now known as Liberty Island) in New York Harbor.",
    "The Lund Studio was used for some rooms and Oslo Studios for some streets.",
    "They had all but lost hope.",
    "He founded and served on the board of the club.",
    "The band went on hiatus in 2006.",
    "Oslo is recognised by the union as the birthplace of the game.",
    "They rely on the rivers of other towns for water.",
    "She spoke about her work and how she was a shy and awkward child.",
    "The lake is Mjosa, which is about 117 km (73 mi) long and lies near Oslo.",
    "It is used for food and drink (for pets), for cleaning of roads, and in several processes.",
    # Another noun may be meant by the pronoun.
    "The firm hired Ann, making her its first female director.",
    "Police arrested Bo, making him the fourth suspect in the case.",
    "The storm killed 90 people, making it the deadliest in history.",
    # Members together, or none of them.
    "It weighs 3 kg and 200 g.",
    "Half of the guests were doctors and nurses.",
    "The victims were men and women.",
    "The flag is red and white.",
    "Water consists of hydrogen and oxygen.",
    "She ordered a gin and tonic and a beer.",
    "It has no clear and simple rules.",
    "Nobody sold old and rare coins.",
    "The law prohibits cruel and unusual punishment.",
    "The drug is unlikely to cause nausea and vomiting.",
    "The drug not only reduces pain but also improves sleep.",
    "Patients should take aspirin only with food and water.",
    "He is believed to be a doctor and a lawyer.",
    "The tool separates hot and cold water.",
    "They formed a public and private partnership.",
    "He moved to Bergen in 1990 at the earliest.",
    "She is a Swedish-born and London-based designer.",
    "She is as gifted and famous as her sister.",
    "It is one of only two large and old churches in the town.",
    "She did not buy a boat called Sea Star.",
    "He may have founded a town called Hope.",
    "If Hugo Lind (born 1951 in Lund) wins, he will be the oldest champion.",
    # What a word belongs to is not certain.
    "He wakes up in a bed, where he finds a doctor, who tells him that he had been in a fight.",
    "She is known for writing novels and directing films.",
    "He has released two albums, Rain in 2017 and Snow in 2019.",
    "She wrote two novels, both of which won prizes.",
    'Focus is best known for its hits "Hocus Pocus" and "Sylvia," both of which feature vocals.',
    "The band had Ann on drums; Bo on bass; and Cy on flute.",
    "He probably stole the car and sold it.",
    "According to the police, he stole the car and sold it.",
    "She failed to shoot and score.",
    "If it rains, the match is moved to Oslo, the capital of Norway.",
    "Berg said that Lind, the mayor, lied and left.",
    "The treaty was signed between Austria and Prussia.",
    "Shakespeare wrote Romeo and Juliet in London.",
    "The orchestra played both Brahms and Dvořák.",
    "Rolls and Royce are two names of one company.",
    "He is either a liar or a poet.",
    "The king was not a poet who wrote or a painter.",
    "Bo is a hero and a winner if he survives.",
    "If the pump fails, the valve closes and opens again.",
    "Some sources have said that the film was made by Lou and produced by Ann.",
    "Simon and Garfunkel sang about a bridge.",
    "The house has a black and white door.",
    "It was a black and white film.",
    "No one knows who built the tower and painted the walls.",
    "Anna met a man who had lived in Rome and studied law.",
    "It was Anna who found the coin and the ring.",
    "The cake needs flour, e.g. rye or wheat, sugar, and eggs.",
    "The mill was owned by Lee, by Bo, and by the town, in that order.",
    "The kit contains (a) a hammer, (b) a saw, and (c) three clamps.",
    "The house was built by Blake and Sons.",
    "The wine can be red or white.",
    "It was not Ann who won the race.",
    "It is a myth that Ann won.",
    "It could be a virus that spreads.",
    "It predicted a war that killed millions.",
    "He built a house that burned and a barn.",
    "Bob Lee, a doctor or a nurse, died.",
    "Bob Lee, a doctor until 1990, died.",
    "Exactly one man ate and drank.",
    "The authors of the book are Ann Lee and Bob Roy.",
    "Its capital is Rome and its largest city Oslo.",
    "A tour can take two or three hours.",
    "Ann and Bo are friends.",
    "Ann and Bo are members of the same band.",
    "Tea and coffee are the most popular drinks.",
    "Some dogs and cats are both black.",
    "Cooks need a knife that cuts.",
    "They want to build a bridge that connects both towns.",
    "The report did not say that the city has parks and museums.",
    "One more writer is Ann Lee.",
    "The colours are: red, green, and blue.",
    "The price rose from 1,200.50 to 1,300.75 dollars.",
]


@pytest.mark.parametrize("sentence", WHOLE)
def test_sentences_that_are_not_split(sentence: str) -> None:
    assert claims(sentence) == [sentence]


def test_low_coverage_keeps_the_main_statement() -> None:
    assert claims("Paris, the capital of France, lies on the Seine.", "low", "low") == [
        "Paris lies on the Seine."
    ]
    assert claims("In fact, Bo Ek (1901-1980) wrote plays, including a farce.", "low", "low") == [
        "Bo Ek wrote plays."
    ]
    assert claims("It was a very influential study.", "low", "low") == ["It was a study."]


def test_low_coverage_never_strengthens_a_negation() -> None:
    text = "The drug has no significant effect on sleep."
    assert claims(text, "low", "low") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "Albert Einstein war ein Physiker, der in Ulm geboren wurde und in Princeton starb.",
        "Marie Curie était une physicienne et chimiste qui est née à Varsovie.",
        "Эйнштейн родился в Ульме и умер в Принстоне.",
        "爱因斯坦是物理学家，他出生在乌尔姆。",
        "وُلد أينشتاين في أولم وتوفي في برينستون.",
    ],
)
@pytest.mark.parametrize("atomicity", EXTENTS)
@pytest.mark.parametrize("coverage", EXTENTS)
def test_sentences_of_other_languages_stay_whole(
    text: str, atomicity: Extent, coverage: Extent
) -> None:
    assert claims(text, atomicity, coverage) == [text]


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("The X2 is a router made by Acme. It has four ports.", "The X2 has four ports."),
        ("The Louvre is a museum visited by Ann. It is large.", "The Louvre is large."),
        ("The head of Acme is Ann. She has two cats.", "Ann has two cats."),
        ("iPhone is a phone made by Apple. It has two cameras.", "iPhone has two cameras."),
    ],
)
def test_what_a_sentence_is_about_is_the_antecedent(text: str, last: str) -> None:
    assert claims(text)[-1] == last


def test_a_pronoun_with_a_certain_antecedent_is_resolved() -> None:
    text = "Ada Lovelace was a mathematician. She wrote a program. It ran."
    assert claims(text)[1:] == ["Ada Lovelace wrote a program.", "It ran."]
    text = "The Eiffel Tower is located in Paris. It has a height of 1000ft."
    assert claims(text)[1] == "The Eiffel Tower has a height of 1000ft."


@pytest.mark.parametrize(
    "text",
    [
        "Ada Lovelace was a friend of Mary Somerville. She liked Ann Lee. She wrote a book.",
        "Ada Lovelace was a mathematician. She liked him. He wrote a book.",
        "Rome is a city. It is known that he wrote a book.",
    ],
)
def test_a_pronoun_with_an_uncertain_antecedent_stays(text: str) -> None:
    assert claims(text)[-1] in text


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("It cost 5 € and sold for 3 £.", ["It cost 5 €.", "It sold for 3 £."]),
        ("Bo won 2 % and Al lost 1 %.", ["Bo won 2 %.", "Al lost 1 %."]),
        ("Ice melts at 0 ° and it boils at 9 °.", ["Ice melts at 0 °.", "It boils at 9 °."]),
        ("But -5 is less than 3.", ["-5 is less than 3."]),
        ("However, −5 is less than 3.", ["−5 is less than 3."]),
        ("But ~5 is less than 3.", ["~5 is less than 3."]),
        ("But – 5 is less than 3.", ["5 is less than 3."]),
        ("Bo wrote C++, and Al wrote C#.", ["Bo wrote C++.", "Al wrote C#."]),
        ("It was wrong, and f(x) is odd.", ["It was wrong.", "F(x) is odd."]),
        ("Item(s) are here and are red.", ["Item(s) are here.", "Item(s) are red."]),
        ("The sum is 3 * 4, and it is 12.", ["The sum is 3 * 4.", "It is 12."]),
        ("The sum is 2**3, and it is 8.", ["The sum is 2**3.", "It is 8."]),
        ("It rose by **5 €**, and they fell.", ["It rose by 5 €.", "They fell."]),
        (
            "Zoe\u0308 met Rene\u0301 and founded Cafe\u0301.",
            ["Zoe\u0308 met Rene\u0301.", "Zoe\u0308 founded Cafe\u0301."],
        ),
    ],
)
def test_signs_units_and_marks_stay_with_their_numbers_and_words(
    sentence: str, expected: list[str]
) -> None:
    assert claims(sentence) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Al Bo moved to Rome, where he sang.", ["Al Bo moved to Rome.", "Al Bo sang in Rome."]),
        ("She died in Rome, where she sang.", ["She died in Rome.", "She sang in Rome."]),
        ("Ada, whose uncle was Bo, was old.", ["Ada was old.", "Ada's uncle was Bo."]),
        ("It was led by the poet, who was ill.", ["It was led by the poet.", "The poet was ill."]),
        ("He built the mill, which was red.", ["He built the mill.", "The mill was red."]),
        ("Rome (in Italy), which was old, fell.", ["Rome (in Italy) fell.", "Rome was old."]),
        ("Al, born in Rome, was ill.", ["Al was ill.", "Al was born in Rome."]),
        ("Rome, Italy's capital, was old.", ["Rome was old.", "Rome was Italy's capital."]),
        ("The city has a mill, which was red.", ["The city has a mill.", "The mill was red."]),
        ("Bo's capital, Rome, was old.", ["Bo's capital was old.", "Bo's capital was Rome."]),
        ("Al was an heir and user.", ["Al was an heir.", "Al was a user."]),
        ("He's a poet, and they've left.", ["He's a poet.", "They've left."]),
    ],
)
def test_parentheticals_become_statements(sentence: str, expected: list[str]) -> None:
    assert claims(sentence) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "She met Al and Bo, who was a poet.",
        "Al moved to Rome with Bo, where he sang.",
        "Rome fell, which was a shock.",
        "Rome fell, which helped.",
    ],
)
def test_parentheticals_with_an_uncertain_antecedent_stay(sentence: str) -> None:
    assert claims(sentence) == [sentence]


def test_low_coverage_keeps_parentheses_within_words() -> None:
    assert claims("The item(s) in f(x) (a set) are 2**3.", "low", "low") == [
        "The item(s) in f(x) are 2**3."
    ]
    assert claims("(Once) Bo (a poet) left.", "low", "low") == ["Bo left."]


def test_markup_is_no_part_of_a_claim() -> None:
    text = (
        "# Rivers\n\nHere are two rivers:\n\n- **The Nile** flows through Egypt [1].\n"
        "2. [The Volga](http://a.b/c) flows through Russia.\n```\nx = 1\n```\n"
    )
    expected = ["The Nile flows through Egypt.", "The Volga flows through Russia."]
    assert claims(text, "low", "high") == claims(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        "Who was Marie Curie?",
        "Hello! How can I help you today?",
        "Sure!",
        "I don't know.",
        "I hope this helps!",
        "Let me know if you have any questions.",
        "😀",
        "---",
        "Yes.",
        "谁是爱因斯坦？",
    ],
)
def test_sentences_without_a_statement_give_no_claim(text: str) -> None:
    assert claims(text, "low", "high") == claims(text) == []


def test_a_short_answer_is_a_claim() -> None:
    assert claims("**Paris**") == ["Paris"]
    assert claims("1945") == ["1945"]


def test_a_repeated_claim_counts_once() -> None:
    assert claims("Rome is old. Oslo is new. Rome is old.") == ["Rome is old.", "Oslo is new."]


def test_spans_are_those_of_the_clauses() -> None:
    found = decompose(EINSTEIN, atomicity="high", coverage="high", parser=PARSER)
    assert [EINSTEIN[claim.start : claim.end] for claim in found] == [
        "Albert Einstein was a German theoretical physicist",
        "developed the theory of relativity",
        "contributed to quantum mechanics",
    ]


PIECES = st.sampled_from(
    (
        "Anna who which that whose was born and but , . ; : ( ) [ ] * \" ' - in 1990 wrote a the "
        "poet painter both between or not However is of whom where ? Paris it She 's 😀 und “ « 。"
    ).split()
)


@given(
    st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=40).map(" ".join)),
    st.sampled_from(EXTENTS),
    st.sampled_from(EXTENTS),
)
def test_any_text_gives_claims_with_spans_in_order(
    text: str, atomicity: Extent, coverage: Extent
) -> None:
    found = decompose(text, atomicity=atomicity, coverage=coverage, parser=PARSER)
    assert all(claim.claim.strip() for claim in found)
    assert all(0 <= claim.start < claim.end <= len(text) for claim in found)
    assert [claim.start for claim in found] == sorted(claim.start for claim in found)
    assert len({claim.claim for claim in found}) == len(found)


@pytest.mark.parametrize("unit", ["Bo, a poet, and ", "(", '"', "[a](", "a. ", "- x\n", "```\n"])
def test_long_texts_take_linear_time(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    started = time.process_time()
    decompose(text, atomicity="high", coverage="low", parser=PARSER)
    assert time.process_time() - started < 6
