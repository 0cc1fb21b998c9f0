"""Labels and tags given in `claimflow view`: by keys, stored at once, by several people."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

import pytest
from playwright.sync_api import Browser, Page, expect

from claimflow.flows.cli.main import main
from claimflow.flows.store.read_copy import is_current, readable_store, write_read_copy
from claimflow.flows.store.runs import tags
from claimflow.flows.store.store import Store
from claimflow.flows.viewer.server import ViewServer
from tests.endpoint.server import serve
from tests.flows.judged import CLAIMS, Judged, sample
from tests.flows.locked_store import LockedStore
from tests.flows.recorded_runs import claims, put_run, samples, verdicts
from tests.flows.viewing import Client, serving, watched_page

KEYS = dict(zip(CLAIMS, "123", strict=True))
TARGET = "verdicts of response_in_reference"
SAME = ", in 9 rows of which some have the same texts"
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>"


def run(folder: Path, samples: list[Any]) -> Judged:
    """A pipeline run in a thread: the browser has an event loop in this one."""

    def made() -> Judged:
        with serve() as endpoint:
            pipeline = Judged(folder, endpoint)
            pipeline.write(samples)
            pipeline.run()
        return pipeline

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(made).result()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A pipeline run once: nine verdicts, those of two samples on the same texts."""
    twin = sample("one") | {"sample_id": "twin"}
    return run(tmp_path_factory.mktemp("finished"), ["one", "two", twin])


@pytest.fixture
def judged(finished: Judged, tmp_path: Path) -> Judged:
    return finished.copied(tmp_path)


@pytest.fixture
def view(judged: Judged) -> Iterator[ViewServer]:
    with serving(judged.store) as view:
        yield view


def address(path: str, **more: object) -> str:
    sheet = {"run": "latest", "of": "verdicts", "step": "response_in_reference", "sample": 9}
    return f"{path}?{urlencode(sheet | {'who': 'ann'} | more)}"


def opened(page: Page, view: ViewServer, path: str) -> None:
    page.goto(view.url)
    page.goto(f"http://127.0.0.1:{view.server_port}{path}")


def claim_shown(page: Page) -> str:
    return page.locator("#texts p").last.inner_text()


def label_all(page: Page, *, swap: str = "") -> None:
    """Label every row by a key; the claim `swap` as neutral."""
    for number in range(6):
        expect(page.locator("#progress")).to_contain_text(f"{number} labelled")
        claim = claim_shown(page)
        page.keyboard.press("3" if claim == swap else KEYS[claim])
    expect(page.locator("#done")).to_contain_text("All rows are labelled")
    expect(page.locator("#stored")).to_have_text("All labels are stored.")


def test_people_label_by_keys_and_their_labels_are_stored(
    browser: Browser, judged: Judged, view: ViewServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with watched_page(browser) as page:
        opened(page, view, "/label")
        page.get_by_label("Your name").fill("ann")
        page.get_by_label("Rows", exact=True).fill("9")
        page.locator("select[name=what]").select_option(label=TARGET)
        page.get_by_role("button", name="Label", exact=True).click()
        expect(page.locator("#progress")).to_have_text(f"Text 1 of 6{SAME}: 0 labelled")
        source = page.content()
        reasons = judged.ask("SELECT reason FROM verdicts WHERE reason IS NOT NULL")
        assert reasons
        assert not [reason for (reason,) in reasons if reason in source]
        label_all(page)
        stored = judged.ask(
            "SELECT count(*), count(DISTINCT subject), any_value(annotator), any_value(file), "
            "bool_or(seen), bool_or(adjudicates), min(probability) FROM audit.labels"
        )
        assert stored == [(9, 6, "ann", "claimflow view", False, False, 1.0)]
        page.get_by_role("link", name="What the labels say").click()
        expect(page.locator("main")).to_contain_text("entailed: people would say 33 %, between ")
        expect(page.locator("main")).to_contain_text("The judge agrees with people on 9 of 9 rows.")
        # The next person begins anew, and differs on one claim.
        opened(page, view, address("/label/sheet", who="bob"))
        label_all(page, swap=CLAIMS[0])
        page.get_by_role("link", name="What the labels say").click()
        expect(page.locator("main")).to_contain_text(
            "ann and bob gave the same label to 4 of the 6 texts that both labelled."
        )
        expect(page.locator("main")).to_contain_text("2 not decided yet.")
        page.get_by_label("Who decides").fill("eve")
        page.get_by_role("button", name="Decide").click()
        expect(page.locator("#progress")).to_have_text(f"Text 1 of 2{SAME}: 0 labelled")
        expect(page.locator("#said")).to_contain_text("ann: entailed")
        expect(page.locator("#said")).to_contain_text("bob: neutral")
        page.keyboard.press("1")
        page.keyboard.press("1")
        expect(page.locator("#stored")).to_have_text("All labels are stored.")
        page.get_by_role("link", name="What the labels say").click()
        expect(page.locator("main")).to_contain_text("0 not decided yet.")
        expect(page.locator("#differing ~ div")).to_contain_text("entailed (eve)")
        expect(page.locator("main")).to_contain_text("The judge agrees with people on 9 of 9 rows.")
    assert main(["calibrate", "--store", str(judged.store.path)]) == 0
    printed = capsys.readouterr().out
    assert "9 of 9 rows labelled by labels of 6 texts, 2 adjudicated" in printed
    assert "ann: 6 labels, bob: 6 labels" in printed


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_the_choice_of_what_is_labelled_can_be_read(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    store = Store(tmp_path / "s.duckdb")
    tables = {
        "samples": samples(["one"]),
        "response_claims": claims({"one": ["Kept."]}),
        "response_in_the_reference": verdicts({("one", "Kept."): "entailed"}),
    }
    run_id = put_run(store, tables, pipeline="answers")
    viewport: Any = {"width": width, "height": 800}
    with serving(store) as view, watched_page(browser, viewport=viewport) as page:
        opened(page, view, "/label")
        wide = "e => [e.clientWidth, (e.style.maxWidth = 'none', e.clientWidth)]"
        for name, text in (("run", f"answers {run_id}"), ("what", "response_in_the_reference")):
            choice = page.locator(f"select[name={name}]")
            expect(choice).to_contain_text(text)
            shown, needed = choice.evaluate(wide)
            assert shown == needed > 240
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_label_is_changed_commented_and_taken_back(
    browser: Browser, judged: Judged, view: ViewServer
) -> None:
    with watched_page(browser) as page:
        opened(page, view, address("/label/sheet"))
        page.keyboard.press("c")
        page.keyboard.type("u 1 n: no key")
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        page.keyboard.press("u")
        expect(page.locator("#progress")).to_have_text(f"Text 3 of 6{SAME}: 2 labelled")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("0")
        expect(page.locator("#progress")).to_have_text(f"Text 2 of 6{SAME}: 1 labelled")
        page.keyboard.press("u")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#comment")).to_have_value("u 1 n: no key")
        expect(page.get_by_role("button", name="entailed (1)")).to_have_attribute(
            "aria-pressed", "true"
        )
        expect(page.locator("#stored")).to_have_text("All labels are stored.")
        # The page goes on where it was left, at the first row without a label.
        page.reload()
        expect(page.locator("#progress")).to_have_text(f"Text 3 of 6{SAME}: 2 labelled")
        page.goto(page.url.replace("/label/sheet", "/label/results"))
        expect(page.locator("#people + div tbody tr")).to_contain_text("ann1 of 61")
        page.get_by_role("link", name="All labels").click()
        expect(page.locator("#begun + div tbody tr")).to_contain_text("random 9 of 9, seed 0ann11")
    newest = judged.ask(
        "SELECT label, unsure, comment FROM audit.labels QUALIFY row_number() OVER "
        "(PARTITION BY subject ORDER BY labelled_at DESC, labels.rowid DESC) = 1"
    )
    assert sorted(newest, key=str) == [
        ("entailed", False, "u 1 n: no key"),
        (None, True, None),
    ]


def test_what_the_judge_says_is_shown_after_the_label_and_recorded(
    browser: Browser, judged: Judged, view: ViewServer
) -> None:
    with watched_page(browser) as page:
        opened(page, view, address("/label/sheet"))
        page.keyboard.press("v")
        expect(page.locator("#said")).to_contain_text("Label the row first")
        page.keyboard.press("1")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("v")
        expect(page.locator("#said")).to_contain_text("verdict: ")
        page.keyboard.press("2")
        expect(page.locator("#stored")).to_have_text("All labels are stored.")
        page.goto(page.url.replace("/label/sheet", "/label/results"))
        expect(page.locator("#people + div tbody tr")).to_contain_text("ann1 of 601")
    seen = judged.ask("SELECT DISTINCT label, seen FROM audit.labels ORDER BY ALL")
    assert seen == [("contradicted", True), ("entailed", False)]


def test_labels_wait_for_a_store_that_is_in_use(
    browser: Browser, judged: Judged, view: ViewServer
) -> None:
    with watched_page(browser, forgiven=[REFUSED]) as page:
        opened(page, view, address("/label/sheet"))
        with LockedStore(judged.store.path):
            page.keyboard.press("1")
            page.keyboard.press("2")
            expect(page.locator("#stored")).to_contain_text("2 labels are not stored yet: ")
            expect(page.locator("#stored")).to_contain_text("another process has held the store")
        expect(page.locator("#stored")).to_have_text("All labels are stored.")
    assert judged.ask("SELECT count(DISTINCT subject) FROM audit.labels") == [(2,)]


REFUSED = "Failed to load resource: the server responded with a status of 503 (Service Unavailable)"


@pytest.mark.parametrize(
    ("form", "more", "message"),
    [
        ({"row": "99", "label": "entailed"}, {}, "row: '99' is no such number"),
        ({"row": "-1", "label": "entailed"}, {}, "row: '-1' is no such number"),
        ({"row": "0", "label": "right"}, {}, "label: 'right' is not a label"),
        ({"row": "0", "label": "entailed", "comment": "x" * 10_001}, {}, "comment: is too long"),
        ({"row": "0", "label": "entailed"}, {"who": " "}, "who: is not a name"),
        ({"row": "0", "label": "entailed"}, {"who": "a\nb"}, "who: is not a name"),
        ({"row": "0", "label": "entailed"}, {"of": "jokes"}, "of: 'jokes' cannot be labelled"),
        ({"row": "0", "label": "entailed"}, {"step": "none"}, "has no verdicts of step 'none'"),
        ({"row": "0", "label": "entailed"}, {"sample": "1e9"}, "sample: '1e9' is no such number"),
        ({"row": "0", "label": "entailed"}, {"by": "luck"}, "by: 'luck' is no way to draw"),
        ({"row": "0", "label": "entailed"}, {"run": "none"}, "there is no run 'none'"),
    ],
)
def test_wrong_labels_are_refused(
    judged: Judged, view: ViewServer, form: dict[str, str], more: dict[str, str], message: str
) -> None:
    body = urlencode({"token": view.token} | form)
    status, text, _ = Client(view).ask(address("/label/save", **more), method="POST", body=body)
    assert (status, message in json.loads(text)["message"]) == (400, True), text
    assert judged.ask("SELECT count(*) FROM audit.labels") == [(0,)]


def test_labels_need_the_token(judged: Judged, view: ViewServer) -> None:
    body = urlencode({"token": "guessed", "row": "0", "label": "entailed"})
    assert Client(view).ask(address("/label/save"), method="POST", body=body)[0] == 403
    assert judged.ask("SELECT count(*) FROM audit.labels") == [(0,)]


def test_hostile_texts_stay_text(browser: Browser, tmp_path: Path) -> None:
    hostile = sample(HOSTILE) | {"sample_id": "bad", "user_input": HOSTILE}
    pipeline = run(tmp_path, [hostile])
    with serving(pipeline.store) as view, watched_page(browser) as page:
        opened(page, view, address("/label/sheet", who="<b>ann</b>"))
        expect(page.locator("#texts")).to_contain_text(HOSTILE)
        page.keyboard.press("c")
        page.keyboard.type(HOSTILE)
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        expect(page.locator("#stored")).to_have_text("All labels are stored.")
        page.goto(page.url.replace("/label/sheet", "/label/results"))
        expect(page.locator("#people + div tbody th")).to_have_text("<b>ann</b>")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0


def save_label(client: Client, token: str) -> None:
    body = urlencode({"token": token, "row": "0", "label": "entailed"})
    assert client.ask(address("/label/save"), method="POST", body=body)[0] == 200


def test_the_read_copy_is_written_when_the_viewer_ends(judged: Judged) -> None:
    write_read_copy(judged.store)
    with serving(judged.store) as view:
        save_label(Client(view), view.token)
    assert is_current(judged.store.path)


def test_the_read_copy_is_written_soon_after_a_label(judged: Judged, view: ViewServer) -> None:
    write_read_copy(judged.store)
    save_label(Client(view), view.token)
    latest = time.monotonic() + 60
    while not is_current(judged.store.path):
        assert time.monotonic() < latest
        time.sleep(0.05)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_the_read_copy_is_written_when_a_signal_ends_the_viewer(
    browser: Browser, judged: Judged, end: signal.Signals
) -> None:
    write_read_copy(judged.store)
    command = [sys.executable, "-m", "claimflow", "view", "--port", "0"]
    with subprocess.Popen(
        [*command, "--store", str(judged.store.path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        with watched_page(browser) as page:
            page.goto(url)
            page.goto(urljoin(url, address("/label/sheet")))
            page.keyboard.press("1")
            expect(page.locator("#stored")).to_have_text("All labels are stored.")
        process.send_signal(end)
        assert process.wait(120) == 0
    assert is_current(judged.store.path)


def test_commands_know_a_tag_that_was_given_in_the_viewer(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    write_read_copy(judged.store)
    named = ["--store", str(judged.store.path)]
    with serving(readable_store(judged.store.path)) as view:
        for do, code in (("add", 0), ("remove", 2)):
            body = urlencode({"token": view.token, "tag": "good", "who": "ann", "do": do})
            assert Client(view).ask("/tags?run=latest", method="POST", body=body)[0] == 200
            # A command that finds an old copy would say so a minute later.
            assert is_current(judged.store.path)
            assert main(["show", "good", *named]) == code
    assert "there is no run 'good'" in capsys.readouterr().err


def test_tags_are_given_and_removed_with_who_and_when(
    browser: Browser, judged: Judged, view: ViewServer
) -> None:
    with watched_page(browser, forgiven=[BAD]) as page:
        opened(page, view, "/")
        page.get_by_role("link", name="tags").click()
        for name in ("last week!", "main"):
            page.get_by_label("Tag", exact=True).fill(name)
            page.get_by_label("Your name").fill("ann")
            page.get_by_role("button", name="Add the tag").click()
            if name != "main":
                expect(page.get_by_role("alert")).to_contain_text("cannot be a tag")
        expect(page.locator("tbody tr")).to_contain_text("annadded main")
        assert tags(judged.store).select("tag", "who").rows() == [("main", "ann")]
        page.get_by_role("button", name="Remove main").click()
        expect(page.locator("tbody tr").first).to_contain_text("annremoved main")
        expect(page.locator("main")).to_contain_text("The run has no tag.")
    assert tags(Store(judged.store.path)).is_empty()


BAD = "Failed to load resource: the server responded with a status of 400 (Bad Request)"
