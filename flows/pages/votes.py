"""Whether the votes on claims were of one mind, in words."""

from claimflow.flows.pages.words import counted


def vote_words(unstable: int, voted: int) -> str | None:
    """On how many claims the votes differ, with where to see them; None where nobody voted."""
    if not voted:
        return None
    see = ': see `claimflow sql "SELECT * FROM unstable"`' if unstable else ""
    return f"{unstable:,} of {counted(voted, 'claim')} unstable{see}"
