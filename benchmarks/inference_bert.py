"""Speed of a CAPSAR-BERT on one thread, and the cost of each way to make it faster.

`CAPSAR_DATA=… python benchmarks/inference_bert.py BUNDLE [--dataset NAME]`

All variants are timed in turn in one process at batch 32, on test sentences. Quantization is
calibrated on training sentences, and the best variant is chosen on the validation set. Writes
`results/inference-bert.json`.
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

from capsar.bundle import CAPSULES, CONFIG, ENCODER, open_bundle, write_bundle
from capsar.config import run_config
from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import evaluate, labeled
from capsar.inference.analyzer import Analyzer, load
from capsar.inference.engine import Engine
from capsar.inference.inputs import PaddedBatch
from capsar.model.network import Capsar
from capsar.tokenizer import Encoding, tokenize_words
from capsar.training.dataset import prepare_data
from capsar.training.export import export_transformer
from capsar.training.initialize import load_network
from capsar.training.trainer import export_bundle
from measure import median_ratio, time_in_turn, write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from capsar.schema import Example

BATCH = 32
CALIBRATION_SENTENCES = 128
TIMED_SENTENCES, TURNS = 640, 7
MAX_ACCURACY_DROP = 0.01


class Calibration:
    """Batches of training sentences for the calibration of ONNX Runtime."""

    def __init__(self, batches: list[PaddedBatch], names: set[str]) -> None:
        self._feeds: Iterator[dict[str, NDArray[Any]]] = iter(
            [{name: getattr(batch, name) for name in sorted(names)} for batch in batches]
        )

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        """Return the next batch, or None after the last."""
        return next(self._feeds, None)


def quantize_static(
    source: Path, scratch: Path, batches: list[PaddedBatch], *, only: str = ""
) -> bytes:
    """Return the encoder with 8-bit matrix products and scales calibrated on training sentences.

    Args:
        source: The bundle.
        scratch: A folder to write to.
        batches: Training sentences.
        only: `up` for the first layer of feed-forward blocks, `not down` for all but the second.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType
    from onnxruntime.quantization import quantize_static as quantize
    from onnxruntime.quantization.shape_inference import quant_pre_process

    scratch.mkdir()
    prepared, out = scratch / "prepared.onnx", scratch / "quantized.onnx"
    quant_pre_process(str(source / ENCODER), str(prepared), skip_symbolic_shape=True)
    graph = onnx.load(prepared).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}

    def is_quantized(weight: str) -> bool:
        rows, columns = shapes.get(weight, (0, 0))[:2]
        if weight not in shapes or not only:
            return weight in shapes
        return bool(rows < columns if only == "up" else rows <= columns)

    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    quantize(
        str(prepared),
        str(out),
        Calibration(batches, {value.name for value in graph.input}),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul", "Gemm"],
        nodes_to_exclude=[node.name for node in products if not is_quantized(node.input[1])],
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=CalibrationMethod.Percentile,
        extra_options={"CalibPercentile": 99.99, "WeightSymmetric": True},
    )
    return out.read_bytes()


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


def variants(
    source: Path, scratch: Path, calibration: list[PaddedBatch]
) -> Iterator[tuple[str, Engine]]:
    """Yield every available way to run a bundle."""
    bundle = open_bundle(source)
    yield "fp32", Engine(bundle)
    export_bundle(source, scratch / "int8", store="int8")
    stored_int8 = open_bundle(scratch / "int8")
    yield "stored_int8", Engine(stored_int8)
    model, _ = load_network(source)
    if not isinstance(model, Capsar):
        raise SystemExit("A BERT pair classifier has no graphs")
    static = partial(quantize_static, source, batches=calibration)
    encoders: dict[str, Callable[[], bytes]] = {
        "attention_op": lambda: export_transformer(model, opset=23),
        "fused": lambda: fuse(source, bundle.config.get("transformer", {})),
        "static_qdq": lambda: static(scratch=scratch / "q1"),
        "static_qdq_not_down": lambda: static(scratch=scratch / "q2", only="not down"),
        "static_qdq_up": lambda: static(scratch=scratch / "q3", only="up"),
    }
    files = {name: bundle.path(name).read_bytes() for name in bundle.files if name != CONFIG}
    for name, make in encoders.items():
        try:
            write_bundle(scratch / name, bundle.config, files | {ENCODER: make()})
            yield name, Engine(open_bundle(scratch / name))
        except Exception as error:  # noqa: BLE001  (one failing tool does not stop the others)
            print(f"{name}: not available: {error!r:.300}")
    yield "openvino", Engine(bundle, backend="openvino")
    yield "openvino_stored_int8", Engine(stored_int8, backend="openvino")


def encodings_of(engine: Engine, examples: list[Example]) -> list[Encoding]:
    """Return the encodings of sentences and aspects, sorted by length."""
    words = [[e.text[start:end] for start, end in tokenize_words(e.text)] for e in examples]
    reads_aspect = engine.tokenizer.reads_aspect
    aspects = [[e.aspect] if e.aspect and reads_aspect else [] for e in examples]
    return sorted(engine.tokenizer.encode(words, aspects), key=lambda encoding: len(encoding.ids))


def rows_of(batch: PaddedBatch) -> Iterator[PaddedBatch]:
    """Divide a batch without changing its width, which the calibration needs to be constant."""
    for start in range(0, len(batch.ids), BATCH):
        rows = slice(start, start + BATCH)
        yield PaddedBatch(
            batch.ids[rows], batch.mask[rows], batch.words[rows], batch.segments[rows]
        )


def batch_shift(analyzer: Analyzer, examples: list[Example]) -> float:
    """Return the largest change of a prediction when its sentence is in a batch."""
    together = analyzer.predict_lengths(examples)
    alone = np.concatenate([analyzer.predict_lengths([example]) for example in examples])
    return float(abs(together - alone).max())


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a CAPSAR-BERT.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--dataset", default="semeval14-restaurants")
    options = parser.parse_args()
    splits = prepare_data(run_config({"data": {"train": options.dataset}}).data).splits
    test = test_examples(options.dataset)
    with tempfile.TemporaryDirectory() as folder:
        metrics = measure(options.bundle, splits.train, splits.validation, test, Path(folder))
    packages = ("torch", "transformers", "onnxruntime", "openvino")
    write_result("inference-bert", metrics, packages)


def measure(
    source: Path,
    train: list[Example],
    validation: list[Example],
    test: list[Example],
    scratch: Path,
) -> dict[str, float]:
    analyzer = load(source)
    engine = analyzer._engine  # noqa: SLF001
    window = engine.tokenizer.window
    chosen = train[:: len(train) // CALIBRATION_SENTENCES][:CALIBRATION_SENTENCES]
    whole = PaddedBatch.from_encodings(encodings_of(engine, chosen), window)
    timed_encodings = encodings_of(engine, labeled(test)[:TIMED_SENTENCES])
    timed = [
        PaddedBatch.from_encodings(timed_encodings[start : start + BATCH], window)
        for start in range(0, len(timed_encodings), BATCH)
    ]
    metrics: dict[str, float] = {}
    engines = dict(variants(source, scratch, list(rows_of(whole))))
    accuracy: dict[str, list[float]] = {}
    for name, engine in engines.items():
        analyzer._engine = engine  # noqa: SLF001
        accuracy[name] = [evaluate(analyzer, part).metrics.accuracy for part in (validation, test)]
        drops = np.subtract(accuracy["fp32"], accuracy[name]).tolist()
        metrics[f"{name}_validation_accuracy_drop"], metrics[f"{name}_accuracy_drop"] = drops
        metrics[f"{name}_batch_shift"] = batch_shift(analyzer, labeled(test)[:64])

    def encode(engine: Engine) -> None:
        for batch in timed:
            engine.encode(batch)

    def predict(engine: Engine) -> None:
        for batch in timed:
            sentence = np.arange(len(batch.ids))
            engine.route(engine.encode(batch), sentence, np.zeros_like(batch.words[:, :1]))

    calls: dict[str, Callable[[], object]] = {
        name: partial(predict, engine) for name, engine in engines.items()
    }
    calls["encoder"] = partial(encode, engines["fp32"])
    seconds = time_in_turn(calls, TURNS)
    metrics["graph_over_encoder"] = median_ratio(seconds["fp32"], seconds["encoder"])
    metrics["sentences_per_s"] = len(timed_encodings) / statistics.median(seconds["fp32"])
    for name in engines:
        metrics[f"{name}_speedup"] = median_ratio(seconds["fp32"], seconds[name])
    accurate = [
        name for name in engines if metrics[f"{name}_validation_accuracy_drop"] <= MAX_ACCURACY_DROP
    ]
    best = max(accurate, key=lambda name: metrics[f"{name}_speedup"])
    print(f"best: {best}")
    metrics["best_speedup"] = metrics[f"{best}_speedup"]
    metrics["best_accuracy_drop"] = metrics[f"{best}_accuracy_drop"]
    sizes = [
        sum((path / name).stat().st_size for name in (ENCODER, CAPSULES))
        for path in (scratch / "int8", source)
    ]
    metrics["size_ratio"] = sizes[0] / sizes[1]
    return metrics


if __name__ == "__main__":
    main()
