"""The graphs of all-MiniLM-L6-v2 and of what is made of it, in 32 or in 8 bits.

Texts are never padded, so there is no mask.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tests.benchmarks.training.rounding import Matrix, Rounded

Weights = dict[str, Matrix]

LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12
BLOCK: Final = 128
ONE: Final = np.float32(1)
ONNXRUNTIME: Final = "com.microsoft"


class Graph:
    """A builder of an ONNX graph; layers in `small` are in 8 bits."""

    def __init__(self, small: Mapping[str, Rounded]) -> None:
        self.small = small
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.linear_inputs: dict[str, str] = {}

    def constant(self, values: ArrayLike) -> str:
        """Name of a new constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(values, order="C"), name))
        return name

    def add(self, kind: str, *inputs: str, domain: str = "", **settings: Any) -> str:
        """Name of the output of a new node."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, inputs, [name], name=name, domain=domain, **settings)
        )
        return name

    def rows(self, table: Matrix, pick: str) -> str:
        """The rows of `table` with the indices `pick`; stored in 8 bits, with a scale per block."""
        if not self.small:
            return self.add("Gather", self.constant(table), pick)
        blocks = table.reshape(len(table), -1, BLOCK)
        scales = np.abs(blocks).max(axis=2, keepdims=True) / 127
        scales[scales == 0] = 1
        small = self.constant(np.rint(blocks / scales).astype(np.int8))
        wide = self.add("Cast", self.add("Gather", small, pick), to=TensorProto.FLOAT)
        scaled = self.add("Mul", wide, self.add("Gather", self.constant(scales), pick))
        return self.add("Reshape", scaled, self.constant([0, 0, table.shape[1]]))

    def small_constant(self, values: Matrix) -> str:
        """Name of a new constant; stored in 16 bits where layers are in 8 bits."""
        if not self.small:
            return self.constant(values)
        return self.add("Cast", self.constant(values.astype(np.float16)), to=TensorProto.FLOAT)

    def gelu(self, x: str) -> str:
        """GELU. In 8 bits the hyperbolic tangent, off by 0.0005 at most, is as good."""
        return self.add("FastGelu" if self.small else "Gelu", x, domain=ONNXRUNTIME)

    def embed(self, weights: Weights, places: Matrix) -> str:
        """Word embeddings plus position embeddings."""
        words = self.rows(weights["embeddings.word_embeddings.weight"], "input_ids")
        length = self.add("Shape", "input_ids", start=1, end=2)
        start, axis = self.constant([0]), self.constant([0])
        here = self.add("Slice", self.constant(places), start, length, axis)
        return self.add("Add", words, here)

    def mean(self, x: str, chosen: str) -> str:
        """Mean over the tokens for which `chosen` is 1 and not 0.

        Sums of one text alone and of a text among others would add up in different orders;
        products are made text by text.
        """
        one = self.constant([1])
        total = self.add("MatMul", self.add("Unsqueeze", chosen, one), x)
        count = self.add("ReduceSum", chosen, one, keepdims=1)
        return self.add("Div", self.add("Squeeze", total, one), count)

    def normalise(self, x: str, weights: Weights, layer: str) -> str:
        """Layer normalisation."""
        gain, shift = (self.constant(weights[f"{layer}.{part}"]) for part in ("weight", "bias"))
        return self.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=EPSILON)

    def integers(self, x: str, name: str, *, scaled: bool = False) -> str:
        """`x` quantised for layer `name`; `scaled` if it is multiplied by the scale already."""
        small = self.small[name]
        x = x if scaled else self.add("Mul", x, self.constant(small.shrink))
        return self.add("QuantizeLinear", x, self.constant(ONE), self.constant(small.zero))

    def split(self, x: str, *sizes: int) -> list[str]:
        """Parts of the last axis of `x`, of these sizes."""
        number = len(self.nodes)
        parts = [f"Split_{number}_{part}" for part in range(len(sizes))]
        inputs = [x, self.constant(sizes)]
        self.nodes.append(helper.make_node("Split", inputs, parts, name=f"Split_{number}", axis=-1))
        return parts

    def bilinear(self, x: str, weight: Matrix) -> str:
        """`x`, with a 1 as its last number, times `weight` (inputs by outputs).

        The weight has an axis for texts, so that each text is multiplied by itself: a product
        of many rows may add up in another order than one of few.
        """
        product = self.add("MatMul", x, self.small_constant(weight[None, :-1]))
        return self.add("Add", product, self.small_constant(weight[-1]))

    def linear(self, x: str, weights: Weights, name: str, *, scaled: bool = False) -> str:
        """`x` times the transpose of the weight of layer `name` (outputs by inputs), plus its bias.

        The operator wants the zero point of the weights by its place, though there is none.
        """
        self.linear_inputs[name] = x
        if name not in self.small:
            weight = self.constant(weights[f"{name}.weight"].T)
            y = self.add("MatMul", x, weight)
            return self.add("Add", y, self.constant(weights[f"{name}.bias"]))
        small, q = self.small[name], self.integers(x, name, scaled=scaled)
        constants = [self.constant(part) for part in (small.weight.T, ONE, small.scale, small.zero)]
        bias = self.constant(small.bias)
        return self.add("MatMulIntegerToFloat", q, *constants, "", bias, domain=ONNXRUNTIME)

    def attention(self, x: str, weights: Weights, name: str, after: str) -> str:
        """Attention of all heads; in 8 bits the values are scaled for layer `after`."""
        self.linear_inputs[name] = x
        own: dict[str, Any] = {"domain": ONNXRUNTIME, "num_heads": HEADS}
        if name not in self.small:
            weight = self.constant(weights[f"{name}.weight"].T)
            return self.add("Attention", x, weight, self.constant(weights[f"{name}.bias"]), **own)
        small, shrink = self.small[name], np.ones(3 * WIDTH, np.float32)
        shrink[2 * WIDTH :] = self.small[after].shrink
        parts = (small.weight.T, small.bias * shrink, ONE, small.scale * shrink)
        before = [self.constant(part) for part in parts]
        zeros = self.constant(small.zero), self.constant(np.int8(0))
        return self.add("QAttention", self.integers(x, name), *before, "", *zeros, **own)


def layer(graph: Graph, weights: Weights, x: str, name: str) -> str:
    """One transformer layer: attention, then feed forward, each added to its input."""
    after = f"{name}.attention.output.dense"
    y = graph.attention(x, weights, f"{name}.attention.self", after)
    y = graph.add("Add", x, graph.linear(y, weights, after, scaled=True))
    x = graph.normalise(y, weights, f"{name}.attention.output.LayerNorm")
    y = graph.linear(x, weights, f"{name}.intermediate.dense")
    y = graph.add("Add", x, graph.linear(graph.gelu(y), weights, f"{name}.output.dense"))
    return graph.normalise(y, weights, f"{name}.output.LayerNorm")


def encoder(
    weights: Weights, small: Mapping[str, Rounded], *, window: int, watched: bool = False
) -> ModelProto:
    """The encoder: token ids to a vector per token.

    Of a text no more than `window` tokens can be read. `watched`, the further outputs are
    the inputs of the layers, by name.
    """
    graph = Graph(small)
    places = weights["embeddings.position_embeddings.weight"][:window]
    places = places + weights["embeddings.token_type_embeddings.weight"][0]
    x = read(graph, weights, graph.embed(weights, places))
    outputs = [_output(x, ["batch", "sequence", WIDTH]), *_watched(graph, watched=watched)]
    return _model(graph, "all-MiniLM-L6-v2", ["input_ids"], outputs)


def cross_encoder(
    weights: Weights, small: Mapping[str, Rounded], *, window: int, watched: bool = False
) -> ModelProto:
    """The cross-encoder: token ids and kinds of token (1 in the claim) to three logits."""
    graph = Graph(small)
    places = weights["embeddings.position_embeddings.weight"][:window]
    kinds = graph.constant(weights["embeddings.token_type_embeddings.weight"])
    x = graph.embed(weights, places)
    x = read(graph, weights, graph.add("Add", x, graph.add("Gather", kinds, "token_type_ids")))
    claim = graph.add("Cast", "token_type_ids", to=TensorProto.FLOAT)
    claims = graph.mean(x, claim)
    premises = graph.mean(x, graph.add("Sub", graph.constant(ONE), claim))
    first = graph.add("Gather", x, graph.constant(0), axis=1)
    apart = graph.add("Abs", graph.add("Sub", claims, premises))
    both = graph.add("Mul", claims, premises)
    seen = graph.add("Concat", first, claims, premises, apart, both, axis=1)
    # By sums, not by a matrix product: that adds up otherwise where a batch is larger.
    one, last = graph.constant([1]), graph.constant([2])
    parts = graph.add(
        "Mul", graph.add("Unsqueeze", seen, one), graph.constant(weights["head.weight"])
    )
    sums = graph.add("ReduceSum", parts, last, keepdims=0)
    logits = graph.add("Add", sums, graph.constant(weights["head.bias"]))
    outputs = [_output(logits, ["batch", 3]), *_watched(graph, watched=watched)]
    return _model(graph, "claimflow-entailment", ["input_ids", "token_type_ids"], outputs)


HEAD: Final = "heads"
"""The layer of the parser that holds the first layer of all its heads, one below the other."""

ARC, LABEL = 192, 64
_HIDDEN: Final = 2 * (ARC + LABEL)


def parser(
    weights: Weights, small: Mapping[str, Rounded], *, window: int, watched: bool = False
) -> ModelProto:
    """The parser: token ids to what every token is to every other, if both begin words.

    `arcs` is the score of each token (second axis) as a dependent of each (third axis), where
    [CLS] is the root; `relations` the likeliest relation of the two; `tags` the likeliest tag.
    """
    graph = Graph(small)
    places = weights["embeddings.position_embeddings.weight"][:window]
    places = places + weights["embeddings.token_type_embeddings.weight"][0]
    x = read(graph, weights, graph.embed(weights, places))
    every = graph.linear(x, weights, HEAD)
    hidden, tag = graph.split(every, _HIDDEN, len(weights[f"{HEAD}.bias"]) - _HIDDEN)
    dependent, head, own, other = graph.split(graph.gelu(hidden), ARC, ARC, LABEL, LABEL)
    arcs = graph.add("MatMul", graph.bilinear(dependent, weights["arc_w"]), _turned(graph, head))
    # Relations: texts by dependents by relations by heads.
    pairs, single = weights["lab_w"][..., :-1], weights["lab_w"][..., -1].T
    rows = graph.bilinear(own, np.concatenate([*pairs], axis=1))
    rows = graph.add("Reshape", rows, graph.constant([0, -1, LABEL]))
    scores = graph.add("MatMul", rows, _turned(graph, other))
    length = graph.add("Shape", "input_ids", start=1, end=2)
    shape = [graph.constant([0]), length, graph.constant([len(pairs)]), length]
    scores = graph.add("Reshape", scores, graph.add("Concat", *shape, axis=0))
    alone = graph.add("Unsqueeze", graph.bilinear(own, single), graph.constant([3]))
    scores = graph.add("Add", scores, alone)
    found = [
        ("arcs", arcs, TensorProto.FLOAT, ["batch", "sequence", "sequence"]),
        (
            "relations",
            _best(graph, scores, 2),
            TensorProto.INT64,
            ["batch", "sequence", "sequence"],
        ),
        ("tags", _best(graph, tag, 2), TensorProto.INT64, ["batch", "sequence"]),
    ]
    outputs = []
    for name, made, kind, sizes_of in found:
        graph.nodes.append(helper.make_node("Identity", [made], [name]))
        outputs.append(helper.make_tensor_value_info(name, kind, sizes_of))
    outputs += _watched(graph, watched=watched)
    return _model(graph, "claimflow-parser", ["input_ids"], outputs)


def _turned(graph: Graph, x: str) -> str:
    return graph.add("Transpose", x, perm=[0, 2, 1])


def _best(graph: Graph, scores: str, axis: int) -> str:
    return graph.add("ArgMax", scores, axis=axis, keepdims=0)


def read(graph: Graph, weights: Weights, x: str) -> str:
    """All layers, on embedded tokens."""
    x = graph.normalise(x, weights, "embeddings.LayerNorm")
    for number in range(LAYERS):
        x = layer(graph, weights, x, f"encoder.layer.{number}")
    return x


def _output(name: str, shape: list[str | int] | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _watched(graph: Graph, *, watched: bool) -> Iterator[ValueInfoProto]:
    for name, taken in graph.linear_inputs.items() if watched else ():
        graph.nodes.append(helper.make_node("Identity", [taken], [name]))
        yield _output(name, None)


def _model(graph: Graph, name: str, inputs: list[str], outputs: list[ValueInfoProto]) -> ModelProto:
    shape = ["batch", "sequence"]
    taken = [helper.make_tensor_value_info(one, TensorProto.INT64, shape) for one in inputs]
    return helper.make_model(
        helper.make_graph(graph.nodes, name, taken, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(ONNXRUNTIME, 1)],
        ir_version=8,
        producer_name="claimflow",
    )
