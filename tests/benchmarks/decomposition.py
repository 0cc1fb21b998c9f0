"""Claims of the rules compared with claims that people made of the same sentences.

For each data set, at high atomicity and high coverage:

- ours, human: claims per sentence;
- covered: share of the human claims of which one claim of ours has at least 80 % of the
  content words; a sentence that people split and we did not covers nothing;
- with whole: the same when whole sentences count as well;
- precise: share of our claims that match some human claim with token F1 of at least 0.7;
- per s: sentences per CPU second.

- entailed: share of the human claims that our claims, read one after another, entail;
- faithful: share of our claims that the sentence entails; both by the embedded entailment
  model, which is wrong at times (--judge takes a while).

While the rules were written all rows of FactCheckGPT were read, and the even ones of the other
files: `--half odd` has what was not read of these. `--show N` prints N sentences with both
decompositions.
"""

import argparse
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from claimflow.flows.models.entailment.model import EmbeddedEntailment
from claimflow.flows.models.parser import EmbeddedParser
from claimflow.stages.claim_rules.decompose import decompose
from claimflow.stages.tools import Pair

PARSER = EmbeddedParser(threads=1)
FOLDER = Path(__file__).parents[1] / "data" / "decomposition"
SETS = ("factcheckgpt", "factscore_atomic", "hsplit", "realsumm_scu", "wikisplit.test")
STOP_WORDS = frozenset(
    "a an the is are was were be been being has have had do does did of in on at by for from with "
    "to and or but as that this these those it its he she they his her their him them which who "
    "whom whose where when there s also not".split()
)
WORD = re.compile(r"\w+")


class Figures(NamedTuple):
    sentences: int
    ours: int
    human: int
    covered: int
    with_whole: int
    precise: int
    seconds: float


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--half", choices=("even", "odd", "all"), default="all")
    options.add_argument("--show", type=int, default=0)
    options.add_argument("--judge", action="store_true")
    chosen = options.parse_args()
    print(f"{'data set':18}{'n':>5}{'ours':>7}{'human':>7}{'covered':>9}{'with whole':>12}", end="")
    print(f"{'precise':>9}{'per s':>8}" + (f"{'entailed':>10}{'faithful':>10}" * chosen.judge))
    for name in SETS:
        lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        halves = {"even": slice(0, None, 2), "odd": slice(1, None, 2), "all": slice(None)}
        rows = [json.loads(line) for line in lines][halves[chosen.half]]
        show(rows[: chosen.show])
        report(name, measure(rows), judged(rows) if chosen.judge else "")


def judged(rows: list[dict[str, Any]]) -> str:
    """Shares of claims that are entailed, in both directions."""
    theirs, ours = [], []
    for row in rows:
        claims = claims_of(row)
        theirs += [Pair(" ".join(claims), known) for known in human_claims(row)]
        ours += [Pair(row.get("decontextualised") or row["sentence"], claim) for claim in claims]
    found = EmbeddedEntailment().judge(theirs + ours)
    shares = (
        sum(found[pair].entailed >= 0.5 for pair in pairs) / len(pairs) for pairs in (theirs, ours)
    )
    return "".join(f"{share:10.1%}" for share in shares)


def report(name: str, f: Figures, further: str) -> None:
    print(
        f"{name:18}{f.sentences:5}{f.ours / f.sentences:7.2f}{f.human / f.sentences:7.2f}"
        f"{f.covered / f.human:9.1%}{f.with_whole / f.human:12.1%}{f.precise / f.ours:9.1%}"
        f"{f.sentences / f.seconds:8.0f}{further}"
    )


def measure(rows: list[dict[str, Any]]) -> Figures:
    started = time.process_time()
    decomposed = [claims_of(row) for row in rows]
    return compare(rows, decomposed, time.process_time() - started)


def compare(rows: list[dict[str, Any]], decomposed: list[list[str]], seconds: float) -> Figures:
    """The claims of each row compared with those that people made."""
    ours = human = covered = with_whole = precise = 0
    for row, claims in zip(rows, decomposed, strict=True):
        golden = human_claims(row)
        split = claims if len(claims) > 1 or len(golden) == 1 else []
        ours += len(claims)
        human += len(golden)
        covered += sum(any(covers(claim, known) for claim in split) for known in golden)
        with_whole += sum(any(covers(claim, known) for claim in claims) for known in golden)
        every = golden + [known for other in row.get("alternatives", []) for known in other]
        precise += sum(any(token_f1(claim, known) >= 0.7 for known in every) for claim in claims)
    return Figures(len(rows), ours, human, covered, with_whole, precise, seconds)


def claims_of(row: dict[str, Any]) -> list[str]:
    text = row.get("decontextualised") or row["sentence"]
    return [
        found.claim for found in decompose(text, atomicity="high", coverage="high", parser=PARSER)
    ]


def human_claims(row: dict[str, Any]) -> list[str]:
    return [claim for claim in row["subclaims"] if claim != "BLANK"]


def covers(claim: str, known: str) -> bool:
    wanted = content_words(known)
    return bool(wanted) and len(wanted & content_words(claim)) / len(wanted) >= 0.8


def content_words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text.lower())) - STOP_WORDS


def token_f1(claim: str, known: str) -> float:
    left, right = (Counter(WORD.findall(text.lower())) for text in (claim, known))
    shared = (left & right).total()
    return 2 * shared / (left.total() + right.total()) if shared else 0.0


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(f"\n{row.get('decontextualised') or row['sentence']}")
        print(*(f"  ours   {claim}" for claim in claims_of(row)), sep="\n")
        print(*(f"  human  {claim}" for claim in human_claims(row)), sep="\n")


if __name__ == "__main__":
    main()
