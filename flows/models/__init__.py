"""Models that run in this process, on ONNX Runtime: sentence encoders, entailment models, a parser.

| tool of a stage (`stages.tools`) | class | its files |
|---|---|---|
| `Embedder` | `sentence_encoder.SentenceEncoder` | carried by claimflow, or a folder |
| `EntailmentModel` | `entailment.model.EmbeddedEntailment` | carried by claimflow |
| `EntailmentModel` | `cross_encoder.CrossEncoder` | a folder, or a Hub model in the cache |
| `Parser` | `parser.EmbeddedParser` | carried by claimflow |

`loading.load_entailment_model` chooses the entailment model of a pipeline. Every model has an
`identity`, which is part of fingerprints and is known from its files alone; the model itself is
loaded when it is first asked. `pipeline.verifier_forms` says what published verifiers read and
answer. `folders` reads what is in a folder, `hub` finds and downloads models of the Hugging Face
Hub, and `onnx` runs the networks.
"""
