"""Inference speed on one thread: `python benchmarks/inference.py [graphs|models|frames]`.

`graphs` (the default) uses a network of the paper's sizes and sentences of random words with the
lengths of review sentences: ONNX graphs, analyzer, torch and the memory of a stream. `models`
measures the bundled models on the smoke set, with and without given aspects, opinion phrases and
themes, and their sizes. Calls are timed in turn; a ratio is the median over the turns. `frames`
analyzes data frames of 100,000 rows with `fast`. Writes `inference.json`, `models.json` or
`frames.json` in `results`.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capsar.bundle import (
    BUNDLED_MODELS,
    CAPSULES,
    CONFIG,
    ENCODER,
    MANIFEST,
    OPINIONS,
    TOKENIZER,
    bundled_models,
    open_bundle,
    write_bundle,
)
from capsar.config import ModelConfig
from capsar.inference.analyzer import load
from capsar.inference.engine import Engine
from capsar.inference.inputs import PaddedBatch
from capsar.themes.schema import as_themes
from capsar.tokenizer import SEGMENTATION, WordTokenizer
from measure import (
    ROOT,
    build_wheel,
    median_ratio,
    peak_memory_mb,
    run_fresh,
    time_in_turn,
    write_result,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from capsar.model.network import Batch, Capsar

    Prepared = tuple[PaddedBatch, NDArray[np.int64], NDArray[np.int64]]

WORDS, SENTENCES, TURNS, BATCH = 20_000, 1024, 15, 64
MODEL_TURNS, MODEL_REPEATS = 7, 8
FRAME_ROWS = 100_000


def vocabulary() -> list[str]:
    generator = random.Random(0)
    words: dict[str, None] = {}
    while len(words) < WORDS:
        letters = generator.choices("abcdefghijklmnoprstuvwy", k=generator.randint(2, 9))
        words["".join(letters)] = None
    return list(words)


def sentences(number: int) -> Iterator[tuple[str, str]]:
    """Yield texts of 4 to 60 words, 17 on average, and one word of each."""
    generator, words = random.Random(1), vocabulary()
    for _ in range(number):
        length = min(60, max(4, round(generator.lognormvariate(2.7, 0.5))))
        chosen = generator.choices(words, k=length - 1)
        yield " ".join(chosen) + ".", generator.choice(chosen)


def make_bundle(folder: Path) -> Capsar:
    import torch

    from capsar.model.network import Capsar
    from capsar.training.export import export_capsules, export_encoder

    torch.manual_seed(0)
    tokenizer = WordTokenizer.build(vocabulary())
    vectors = 0.4 * torch.randn(len(tokenizer), 300)
    model = Capsar(ModelConfig(), vectors, num_trained=5000).eval()
    files = {
        ENCODER: export_encoder(model),
        CAPSULES: export_capsules(model),
        TOKENIZER: tokenizer.content(),
    }
    write_bundle(folder, {"segmentation": SEGMENTATION, "model": asdict(ModelConfig())}, files)
    return model


def prepare(batch: int, aspects: int, words: int | None = None) -> Iterator[Prepared]:
    """Yield sentences, the sentence of each aspect and its first word, in batches by length."""
    generator = np.random.default_rng(2)
    lengths = sorted(words or len(text.split()) + 1 for text, _ in sentences(SENTENCES))
    for start in range(0, len(lengths), batch):
        some = np.array(lengths[start : start + batch])
        positions = np.arange(some.max())
        mask = positions < some[:, None]
        ids = np.where(mask, generator.integers(2, WORDS, mask.shape), 0)
        sentence = np.repeat(np.arange(len(some)), aspects)
        first = generator.integers(0, some[sentence])[:, None]
        padded = PaddedBatch(ids, mask, np.where(mask, positions, -1), np.zeros_like(ids))
        yield padded, sentence, first


def to_tensors(prepared: Prepared) -> Batch:
    import torch

    from capsar.model.network import Batch

    padded, _, first = prepared
    ids, mask = torch.from_numpy(padded.ids), torch.from_numpy(padded.mask)
    words = torch.arange(ids.shape[1]).expand_as(ids)
    no_aspect, unlabeled = torch.zeros_like(mask), torch.full((len(ids),), -1)
    first_words = torch.from_numpy(first)
    return Batch(ids, mask, words, mask, torch.zeros_like(ids), first_words, no_aspect, unlabeled)


def measure_speed(folder: Path) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    model = make_bundle(folder)
    engine, analyzer = Engine(open_bundle(folder)), load(folder)
    texts, given = zip(*sentences(SENTENCES), strict=True)
    prepared = {
        "1": list(prepare(BATCH, 1)),
        "3": list(prepare(BATCH, 3)),
        "8": list(prepare(BATCH, 8)),
        "24 words": list(prepare(BATCH, 1, 24)),
        "60 words": list(prepare(BATCH, 1, 60)),
        "single": list(prepare(1, 1))[:: SENTENCES // 128],
    }
    tensors = {kind: list(map(to_tensors, prepared[kind])) for kind in ("1", "single")}

    def encode(kind: str) -> None:
        for padded, _, _ in prepared[kind]:
            engine.encode(padded)

    def graphs(kind: str, *outputs: str) -> None:
        for padded, sentence, first in prepared[kind]:
            engine.route(engine.encode(padded), sentence, first, outputs=outputs)

    @torch.inference_mode()
    def network(kind: str) -> None:
        for batch in tensors[kind]:
            model(batch)

    calls: dict[str, Callable[[], object]] = {
        "encoder": partial(encode, "1"),
        "1": partial(graphs, "1"),
        "3": partial(graphs, "3"),
        "8": partial(graphs, "8"),
        "explained": partial(graphs, "1", "aspect_scores", "attributions"),
        "classify": lambda: analyzer.classify(texts, given),
        "analyze": lambda: analyzer.analyze(texts),
        "torch": partial(network, "1"),
        "encoder 24": partial(encode, "24 words"),
        "24": partial(graphs, "24 words"),
        "encoder 60": partial(encode, "60 words"),
        "60": partial(graphs, "60 words"),
    }
    seconds = time_in_turn(calls, TURNS)
    single: dict[str, Callable[[], object]] = {
        "graphs": partial(graphs, "single"),
        "torch": partial(network, "single"),
    }
    alone = time_in_turn(single, TURNS)
    ratios = {
        "graph_over_encoder": ("1", "encoder"),
        "graph_over_encoder_3_aspects": ("3", "encoder"),
        "graph_over_encoder_8_aspects": ("8", "encoder"),
        "graph_over_encoder_24_words": ("24", "encoder 24"),
        "graph_over_encoder_60_words": ("60", "encoder 60"),
        "graph_over_encoder_explained": ("explained", "encoder"),
        "analyzer_over_graph": ("classify", "1"),
        "analyze_over_graph": ("analyze", "1"),
        "onnx_over_torch_batch_64": ("torch", "1"),
    }
    return {
        "sentences_per_s": SENTENCES / statistics.median(seconds["classify"]),
        **{key: median_ratio(seconds[a], seconds[b]) for key, (a, b) in ratios.items()},
        "onnx_over_torch_batch_1": median_ratio(alone["torch"], alone["graphs"]),
    }


def stream(folder: str, number: int) -> None:
    """Stream sentences through the analyzer, and print the number of results and peak memory."""
    analyzer = load(folder)
    results = sum(len(found) for found in analyzer.classify_stream(sentences(number)))
    print(json.dumps({"results": results, "peak_mb": peak_memory_mb()}))


def measure_graphs() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bundle"
        metrics = measure_speed(folder)
        few, many = (run_fresh(__file__, "stream", folder, n) for n in (10_000, 1_000_000))
    if (few["results"], many["results"]) != (10_000, 1_000_000):
        raise SystemExit("A result is missing")
    metrics |= {
        "stream_10k_mb": few["peak_mb"],
        "stream_1m_mb": many["peak_mb"],
        "stream_memory_ratio": many["peak_mb"] / few["peak_mb"],
    }
    write_result("inference", metrics, ("torch", "onnxruntime", "tokenizers"))


def measure_models() -> None:
    examples = json.loads((ROOT / "tests" / "regression" / "smoke_set.json").read_bytes())
    texts = [example["text"] for example in examples] * MODEL_REPEATS
    aspects = [[one["aspect"] for one in e["aspects"]] for e in examples] * MODEL_REPEATS
    names = bundled_models()
    calls: dict[str, Callable[[], object]] = {}
    themes = as_themes("electronics")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            analyzer = load(name, threads=1)
            calls[name] = partial(analyzer.analyze, texts)
            calls[f"{name}_given"] = partial(analyzer.classify, texts, aspects)
            plain = load(without_opinions(name, Path(folder) / name), threads=1)
            calls[f"{name}_without_opinions"] = partial(plain.analyze, texts)
            calls[f"{name}_themes"] = partial(analyzer.analyze, texts, themes=themes)
        seconds = time_in_turn(calls, MODEL_TURNS)
    metrics = {
        f"{key}_sentences_per_s": len(texts) / statistics.median(some)
        for key, some in seconds.items()
    }
    metrics["fast_over_base"] = median_ratio(seconds["base"], seconds["fast"])
    metrics["fast_over_base_given"] = median_ratio(seconds["base_given"], seconds["fast_given"])
    for name in names:
        without = seconds[f"{name}_without_opinions"]
        metrics[f"{name}_opinions_speed"] = median_ratio(without, seconds[name])
        metrics[f"{name}_themes_speed"] = median_ratio(seconds[name], seconds[f"{name}_themes"])
        files = (BUNDLED_MODELS / name).iterdir()
        metrics[f"{name}_mb"] = sum(file.stat().st_size for file in files) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        metrics["wheel_mb"] = build_wheel(Path(folder)).stat().st_size / 1e6
    write_result("models", metrics, ("onnxruntime",))


def measure_frames() -> None:
    """Analyze frames of three libraries, and the same texts without a frame."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    examples = json.loads((ROOT / "tests" / "regression" / "smoke_set.json").read_bytes())
    texts = [examples[row % len(examples)]["text"] for row in range(FRAME_ROWS)]
    columns = {"id": list(range(FRAME_ROWS)), "review": texts}
    analyzer = load("fast", threads=1)
    start = time.perf_counter()
    mentions = sum(map(len, analyzer.analyze_stream(texts)))
    plain = time.perf_counter() - start
    metrics: dict[str, float] = {"rows": FRAME_ROWS, "mentions": mentions}
    for name, frame in (
        ("pandas", pd.DataFrame(columns)),
        ("polars", pl.DataFrame(columns)),
        ("arrow", pa.table(columns)),
    ):
        start = time.perf_counter()
        found = analyzer.analyze_frame(frame, text="review", progress=False)
        metrics[f"{name}_speed"] = plain / (time.perf_counter() - start)
        assert type(found) is type(frame)
        metrics[f"{name}_rows"] = len(found)
    metrics["peak_mb"] = peak_memory_mb()
    write_result("frames", metrics, ("onnxruntime", "narwhals", "pandas", "polars", "pyarrow"))


def without_opinions(name: str, folder: Path) -> Path:
    """Write a bundled model without its opinion head."""
    bundle = open_bundle(BUNDLED_MODELS / name)
    excluded = (CONFIG, MANIFEST, OPINIONS)
    files = {one: bundle.path(one).read_bytes() for one in bundle.files if one not in excluded}
    write_bundle(folder, bundle.config, files)
    return folder


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stream", folder, number]:
            stream(folder, int(number))
        case ["models"]:
            measure_models()
        case ["frames"]:
            measure_frames()
        case _:
            measure_graphs()
