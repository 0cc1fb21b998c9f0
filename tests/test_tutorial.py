"""The tutorial notebook, run by a kernel of Jupyter."""

import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
TUTORIAL = ROOT / "configs/tutorial.ipynb"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What the code cells show, by media type; standard output is `stdout`."""
    folder = tmp_path_factory.mktemp("tutorial")
    notebook: Any = nbformat.read(shutil.copy(TUTORIAL, folder), as_version=4)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    found = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        shown: dict[str, str] = {}
        for output in cell.outputs:
            if output.output_type == "stream":
                shown[output.name] = shown.get(output.name, "") + output.text
            elif output.output_type == "execute_result":
                shown |= output.data
        found.append(shown)
    assert (folder / "report.html").stat().st_size > 10_000
    return found


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook: Any = nbformat.read(TUTORIAL, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in cells] == [[]] * len(cells)
    assert {cell.execution_count for cell in cells} == {None}


def test_the_notebook_shows_scores_claims_and_evidence(outputs: list[dict[str, str]]) -> None:
    _, result, sample, verdicts, counts, metric, diff, report = outputs
    assert "<table" in result["text/html"]
    assert "factual_correctness" in result["text/html"]
    assert "The bridge is 500 metres long." in sample["text/html"]
    assert "bridge" in verdicts["text/plain"]
    assert "entailed" in counts["text/plain"]
    assert re.match(r"claim_density 0\.\d+ .*, 3 of 3", metric["stdout"])
    assert "claim text changed" in diff["text/html"]
    assert report["stdout"] == "report.html\n"
    assert all("stderr" not in shown for shown in outputs)


def test_the_text_of_a_result_is_text_in_a_notebook(tmp_path: Path) -> None:
    """Nothing is displayed where the text is asked for, and a result is displayed once."""
    code = """
import claimflow
answers = [{"response": "It is high.", "retrieved_contexts": ["It is high."]}]
result = claimflow.evaluate(answers, metrics=["faithfulness"], progress=False)
texts = [str(one) for one in (result, result.sample(result.samples["sample_id"][0]))]
print([text.splitlines()[0][:6] for text in texts])
result
"""
    notebook: Any = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    [cell] = notebook.cells
    shown = [one for one in cell.outputs if one.output_type != "stream"]
    assert [one.output_type for one in shown] == ["execute_result"]
    assert "faithfulness" in shown[0].data["text/plain"]
    assert "".join(one.text for one in cell.outputs if one.output_type == "stream") == (
        "['run 20', 'sample']\n"
    )
