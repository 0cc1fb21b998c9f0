"""The four claim metrics by ragas, for the comparison in `judge.py`: run by a Python that has it.

    PYTHON ragas_peer.py SAMPLES.jsonl URL CONCURRENCY

Prints wall seconds and CPU seconds, without those of importing ragas.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
os.environ["RAGAS_DO_NOT_TRACK"] = "true"


def main(samples: Path, url: str, concurrency: int) -> None:
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from ragas import EvaluationDataset, RunConfig, SingleTurnSample, evaluate
    from ragas.embeddings import LangchainEmbeddingsWrapper
    from ragas.llms import LangchainLLMWrapper
    from ragas.metrics import AnswerCorrectness, FactualCorrectness, Faithfulness, LLMContextRecall

    settings = {"base_url": f"{url}/v1", "api_key": "none"}
    llm = LangchainLLMWrapper(ChatOpenAI(model="fake", temperature=0, **settings))
    embeddings = OpenAIEmbeddings(model="fake", check_embedding_ctx_length=False, **settings)
    read = [json.loads(line) for line in samples.read_text("utf-8").splitlines()]
    fields = ("user_input", "response", "reference", "retrieved_contexts")
    dataset = EvaluationDataset(
        samples=[SingleTurnSample(**{name: one[name] for name in fields}) for one in read]
    )
    metrics = [FactualCorrectness(), AnswerCorrectness(), Faithfulness(), LLMContextRecall()]
    started, cpu = time.monotonic(), time.process_time()
    evaluate(
        dataset,
        metrics,
        llm=llm,
        embeddings=LangchainEmbeddingsWrapper(embeddings),
        run_config=RunConfig(max_workers=concurrency),
        show_progress=False,
    )
    print(time.monotonic() - started, time.process_time() - cpu)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
