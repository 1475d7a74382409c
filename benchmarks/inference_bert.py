"""How fast a CAPSAR-BERT answers on one thread, and what each way to make it faster costs.

`CAPSAR_DATA=… python benchmarks/inference_bert.py BUNDLE [--dataset NAME] [--turns 7]`

All ways are timed in turn in one process at batch 32, on the test sentences. What is calibrated is
calibrated on training sentences; the way called best is chosen on the dev part.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from capsar.analyze import Analyzer
from capsar.bundle import CAPSULES, CONFIG, ENCODER, open_bundle, write_bundle
from capsar.config import run_config
from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import evaluate, judgeable
from capsar.model.network import Capsar
from capsar.runtime import Rows, Runtime
from capsar.sessions import Sessions
from capsar.text import Layout, segment
from capsar.training.prepare import prepare_data
from capsar.training.run import export_bundle, load_network
from capsar.training.transformer_graph import export_transformer
from measure import in_turn, ratio, write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from capsar.data.example import Example

BATCH = 32
CALIBRATED_ON = 128
ALLOWED_DROP = 0.01


class Calibration:
    """Batches of training sentences, in the form that ONNX Runtime's calibration reads."""

    def __init__(self, batches: list[Rows], names: set[str]) -> None:
        feeds: list[dict[str, NDArray[Any]]] = [
            {name: getattr(rows, name) for name in sorted(names)} for rows in batches
        ]
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        """Return the next batch, until there is none."""
        return next(self._feeds, None)


def with_encoder(source: Path, folder: Path, content: bytes) -> Path:
    """Write a bundle that differs in its encoder graph."""
    bundle = open_bundle(source)
    files = {name: bundle.path(name).read_bytes() for name in bundle.files if name != CONFIG}
    write_bundle(folder, bundle.config, files | {ENCODER: content})
    return folder


def quantize_static(source: Path, scratch: Path, batches: list[Rows], *, only: str = "") -> bytes:
    """Return the encoder with products in 8 bits, of scales fixed on training sentences.

    Args:
        source: The bundle.
        scratch: A folder to write in.
        batches: Training sentences.
        only: Part of the names of weights whose products are quantised; of all if empty.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType
    from onnxruntime.quantization import quantize_static as quantize
    from onnxruntime.quantization.shape_inference import quant_pre_process

    scratch.mkdir()
    prepared, out = scratch / "prepared.onnx", scratch / "quantised.onnx"
    quant_pre_process(str(source / ENCODER), str(prepared), skip_symbolic_shape=True)
    graph = onnx.load(prepared).graph
    weights = {tensor.name for tensor in graph.initializer}
    kept = [
        node.name
        for node in graph.node
        if node.op_type in ("MatMul", "Gemm")
        and (node.input[1] not in weights or (only and not _is_wide(graph, node.input[1], only)))
    ]
    quantize(
        str(prepared),
        str(out),
        Calibration(batches, {value.name for value in graph.input}),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul", "Gemm"],
        nodes_to_exclude=kept,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.Percentile,
        extra_options={"CalibPercentile": 99.99, "WeightSymmetric": True},
    )
    return out.read_bytes()


def _is_wide(graph: Any, name: str, only: str) -> bool:  # noqa: ANN401
    """Tell whether a weight is the first (`up`) of a feed-forward block, or not its second."""
    (shape,) = (tuple(t.dims) for t in graph.initializer if t.name == name)
    return bool(shape[0] < shape[1] if only == "up" else shape[0] <= shape[1])


def fuse(source: Path, config: dict[str, Any]) -> bytes:
    """Return the encoder with attention, norms and activations as single operations."""
    from onnxruntime.transformers import optimizer

    fused = optimizer.optimize_model(
        str(source / ENCODER),
        model_type="bert",
        num_heads=int(config.get("num_attention_heads", 12)),
        hidden_size=int(config.get("hidden_size", 768)),
        opt_level=0,
    )
    print("fused:", fused.get_fused_operator_statistics())
    content: bytes = fused.model.SerializeToString()
    return content


def ways(source: Path, scratch: Path, calibration: list[Rows]) -> Iterator[tuple[str, Runtime]]:
    """Yield every way to run a bundle that can be had here."""
    yield "fp32", Runtime(Sessions(open_bundle(source)))
    export_bundle(source, scratch / "int8", store="int8")
    yield "stored_int8", Runtime(Sessions(open_bundle(scratch / "int8")))
    config = open_bundle(source).config.get("transformer", {})
    model, _ = load_network(source)
    if not isinstance(model, Capsar):
        raise SystemExit("a bundle of the baseline has no graphs")
    made: dict[str, Callable[[], bytes]] = {
        "attention_op": lambda: export_transformer(model, opset=23),
        "fused": lambda: fuse(source, config),
        "static_qdq": lambda: quantize_static(source, scratch / "q1", calibration),
        "static_qdq_not_down": lambda: quantize_static(
            source, scratch / "q2", calibration, only="not down"
        ),
        "static_qdq_up": lambda: quantize_static(source, scratch / "q3", calibration, only="up"),
    }
    for name, make in made.items():
        try:
            folder = with_encoder(source, scratch / name, make())
            yield name, Runtime(Sessions(open_bundle(folder)))
        except Exception as error:  # noqa: BLE001  (whatever a tool raises, the others go on)
            print(f"{name}: not had: {error!r:.300}")
    yield "openvino", Runtime(Sessions(open_bundle(source), backend="openvino"))
    smaller = Sessions(open_bundle(scratch / "int8"), backend="openvino")
    yield "openvino_stored_int8", Runtime(smaller)


def layouts_of(analyzer: Analyzer, examples: list[Example]) -> list[Layout]:
    tokenizer = analyzer._answering.tokenizer  # noqa: SLF001
    words = [[e.text[start:end] for start, end in segment(e.text)] for e in examples]
    aspects = [[e.aspect] if e.aspect and tokenizer.reads_aspect else [] for e in examples]
    return sorted(tokenizer.lay_out(words, aspects), key=lambda layout: len(layout.ids))


def batches_of(layouts: list[Layout], window: int) -> list[Rows]:
    return [Rows.of(layouts[i : i + BATCH], window) for i in range(0, len(layouts), BATCH)]


def _of_one_width(rows: Rows) -> list[Rows]:
    """Cut sentences into batches; ONNX Runtime's histograms need all of one width."""
    names = ("ids", "mask", "words", "segments")
    return [
        Rows(*(getattr(rows, name)[start : start + BATCH] for name in names))
        for start in range(0, len(rows.ids), BATCH)
    ]


def batch_shift(analyzer: Analyzer, examples: list[Example]) -> float:
    """Return how far an answer moves with its batch, at most."""
    together = analyzer.predict_lengths(examples)
    alone = np.concatenate([analyzer.predict_lengths([example]) for example in examples])
    return float(abs(together - alone).max())


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a CAPSAR-BERT.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--dataset", default="semeval14-restaurants")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--sentences", type=int, default=640, help="how many are timed")
    parser.add_argument("--dry", action="store_true", help="print, and write no result")
    options = parser.parse_args()
    prepared = prepare_data(run_config({"data": {"train": options.dataset}}).data)
    test = test_examples(options.dataset)
    with tempfile.TemporaryDirectory() as folder:
        metrics = measure(options, prepared.train, prepared.dev, test, Path(folder))
    if options.dry:
        print(metrics)
    else:
        write_result(
            "inference-bert", metrics, ("torch", "transformers", "onnxruntime", "openvino")
        )


def measure(
    options: argparse.Namespace,
    train: list[Example],
    dev: list[Example],
    test: list[Example],
    scratch: Path,
) -> dict[str, float]:
    analyzer = Analyzer(options.bundle)
    window = analyzer._answering.tokenizer.window  # noqa: SLF001
    chosen = train[:: len(train) // CALIBRATED_ON][:CALIBRATED_ON]  # whole batches
    calibration = _of_one_width(Rows.of(layouts_of(analyzer, chosen), window))
    timed = batches_of(layouts_of(analyzer, judgeable(test)[: options.sentences]), window)
    metrics: dict[str, float] = {}
    runtimes = dict(ways(options.bundle, scratch, calibration))
    accuracy: dict[str, list[float]] = {}
    for name, runtime in runtimes.items():
        analyzer._answering.runtime = runtime  # noqa: SLF001
        accuracy[name] = [evaluate(analyzer, part).figures.accuracy for part in (dev, test)]
        metrics[f"{name}_accuracy_drop"] = accuracy["fp32"][1] - accuracy[name][1]
        metrics[f"{name}_dev_accuracy_drop"] = accuracy["fp32"][0] - accuracy[name][0]
        metrics[f"{name}_batch_shift"] = batch_shift(analyzer, judgeable(test)[:64])

    def encode(runtime: Runtime) -> None:
        for rows in timed:
            runtime.encode(rows, window)

    def whole(runtime: Runtime) -> None:
        for rows in timed:
            sentence = np.arange(len(rows.ids))
            runtime.route(runtime.encode(rows, window), sentence, rows.words[:, :1] * 0)

    calls: dict[str, Callable[[], object]] = {
        name: partial(whole, runtime) for name, runtime in runtimes.items()
    }
    calls["encoder"] = partial(encode, runtimes["fp32"])
    seconds = in_turn(calls, options.turns)
    metrics["graph_over_encoder"] = ratio(seconds["fp32"], seconds["encoder"])
    metrics["sentences_per_s"] = sum(len(rows.ids) for rows in timed) / statistics.median(
        seconds["fp32"]
    )
    for name in runtimes:
        metrics[f"{name}_speedup"] = ratio(seconds["fp32"], seconds[name])
    able = [n for n in runtimes if metrics[f"{n}_dev_accuracy_drop"] <= ALLOWED_DROP]
    best = max(able, key=lambda name: metrics[f"{name}_speedup"])
    print(f"best: {best}")
    metrics["best_speedup"] = metrics[f"{best}_speedup"]
    metrics["best_accuracy_drop"] = metrics[f"{best}_accuracy_drop"]
    sizes = [
        sum((path / name).stat().st_size for name in (ENCODER, CAPSULES))
        for path in (scratch / "int8", options.bundle)
    ]
    metrics["size_ratio"] = sizes[0] / sizes[1]
    return metrics


if __name__ == "__main__":
    main()
