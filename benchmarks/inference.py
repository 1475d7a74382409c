"""Answering at the sizes of the paper, on one thread: graphs, analyzer, network, streamed memory.

`python benchmarks/inference.py` writes `results/inference.json`. Sentences are made of random
words, as long as those of reviews are; everything compared is timed in turn, in one run, and a
ratio is the median over the turns.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from capsar.analyze import Analyzer
from capsar.bundle import CAPSULES, ENCODER, TOKENIZER, open_bundle, write_bundle
from capsar.config import ModelConfig
from capsar.model.batch import Batch
from capsar.model.network import Capsar
from capsar.runtime import Rows, Runtime
from capsar.sessions import Sessions
from capsar.text import SEGMENTATION, WordTokenizer
from capsar.training.export import export_capsules, export_encoder
from measure import in_turn, peak_memory_mb, ratio, run_fresh, write_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.int64]

WORDS, SENTENCES, TURNS = 20_000, 1024, 15
BATCH = 64


def vocabulary() -> list[str]:
    generator = random.Random(0)
    letters = "abcdefghijklmnoprstuvwy"
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(generator.choices(letters, k=generator.randint(2, 9)))] = None
    return list(words)


def sentences(number: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """Make texts of 4 to 60 words, 17 on average, and one word of each."""
    generator, words = random.Random(seed), vocabulary()
    for _ in range(number):
        length = min(60, max(4, round(generator.lognormvariate(2.7, 0.5))))
        chosen = generator.choices(words, k=length - 1)
        yield " ".join(chosen) + ".", generator.choice(chosen)


def make_bundle(folder: Path) -> Capsar:
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


def prepare(
    batch: int, aspects: int, words: int | None = None
) -> Iterator[tuple[Array, NDArray[np.bool_], Array, Array]]:
    """Ids, mask, sentence of each aspect and its first word, in batches of like length."""
    generator = np.random.default_rng(2)
    lengths = sorted(words or len(text.split()) + 1 for text, _ in sentences(SENTENCES))
    for start in range(0, len(lengths), batch):
        some = np.array(lengths[start : start + batch])
        mask = np.arange(some.max()) < some[:, None]
        ids = np.where(mask, generator.integers(2, WORDS, mask.shape), 0)
        sentence = np.repeat(np.arange(len(some)), aspects)
        first = generator.integers(0, some[sentence])[:, None]
        yield ids, mask, sentence, first


def measure_speed(folder: Path) -> dict[str, float]:
    torch.set_num_threads(1)
    model = make_bundle(folder)
    runtime = Runtime(Sessions(open_bundle(folder)))
    analyzer = Analyzer(folder)
    texts, given = zip(*sentences(SENTENCES), strict=True)

    def encode(kind: str) -> None:
        for ids, mask, _, _ in prepared[kind]:
            runtime.encode(rows(ids, mask))

    def graphs(kind: str, *outputs: str) -> None:
        for ids, mask, sentence, first in prepared[kind]:
            runtime.route(runtime.encode(rows(ids, mask)), sentence, first, outputs=outputs)

    @torch.inference_mode()
    def network(batches: list[Batch]) -> None:
        for batch in batches:
            model(batch)

    prepared = {
        "1": list(prepare(BATCH, 1)),
        "3": list(prepare(BATCH, 3)),
        "8": list(prepare(BATCH, 8)),
        "24 words": list(prepare(BATCH, 1, 24)),
        "60 words": list(prepare(BATCH, 1, 60)),
        "alone": list(prepare(1, 1))[:: SENTENCES // 128],
    }
    batches, single = (list(map(tensors, prepared[kind])) for kind in ("1", "alone"))
    wide = in_turn(
        {
            "encoder": lambda: encode("1"),
            "1": lambda: graphs("1"),
            "3": lambda: graphs("3"),
            "8": lambda: graphs("8"),
            "explained": lambda: graphs("1", "about", "because"),
            "analyzer": lambda: analyzer.classify(texts, given),
            "analyze": lambda: analyzer.analyze(texts),
            "torch": lambda: network(batches),
            "encoder 24": lambda: encode("24 words"),
            "24": lambda: graphs("24 words"),
            "encoder 60": lambda: encode("60 words"),
            "60": lambda: graphs("60 words"),
        },
        TURNS,
    )
    alone = in_turn({"graphs": lambda: graphs("alone"), "torch": lambda: network(single)}, TURNS)
    return {
        "sentences_per_s": SENTENCES / statistics.median(wide["analyzer"]),
        "graph_over_encoder": ratio(wide["1"], wide["encoder"]),
        "graph_over_encoder_3_aspects": ratio(wide["3"], wide["encoder"]),
        "graph_over_encoder_8_aspects": ratio(wide["8"], wide["encoder"]),
        "graph_over_encoder_24_words": ratio(wide["24"], wide["encoder 24"]),
        "graph_over_encoder_60_words": ratio(wide["60"], wide["encoder 60"]),
        "graph_over_encoder_explained": ratio(wide["explained"], wide["encoder"]),
        "analyzer_over_graph": ratio(wide["analyzer"], wide["1"]),
        "analyze_over_graph": ratio(wide["analyze"], wide["1"]),
        "onnx_over_torch_batch_64": ratio(wide["torch"], wide["1"]),
        "onnx_over_torch_batch_1": ratio(alone["torch"], alone["graphs"]),
    }


def rows(ids: Array, mask: NDArray[np.bool_]) -> Rows:
    words = np.where(mask, np.arange(ids.shape[1]), -1)
    return Rows(ids, mask, words, np.zeros_like(ids))


def tensors(arrays: tuple[Array, NDArray[np.bool_], Array, Array]) -> Batch:
    ids, mask, _, first = map(torch.from_numpy, arrays)
    words = torch.arange(ids.shape[1]).expand_as(ids)
    nothing, unknown = torch.zeros_like(mask), torch.full((len(ids),), -1)
    return Batch(ids, mask, words, mask, torch.zeros_like(ids), first, nothing, unknown)


def stream(folder: str, number: int) -> None:
    """Stream sentences through the analyzer, keep nothing, and tell the peak memory."""
    analyzer = Analyzer(folder)
    count = sum(len(answers) for answers in analyzer.classify_stream(sentences(number)))
    print(json.dumps({"answers": count, "peak_mb": peak_memory_mb()}))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bundle"
        metrics = measure_speed(folder)
        few, many = (run_fresh(__file__, "stream", folder, n) for n in (10_000, 1_000_000))
        metrics |= {
            "stream_10k_mb": few["peak_mb"],
            "stream_1m_mb": many["peak_mb"],
            "stream_memory_ratio": many["peak_mb"] / few["peak_mb"],
        }
        if (few["answers"], many["answers"]) != (10_000, 1_000_000):
            raise SystemExit("an answer is missing")
    write_result("inference", metrics, ("torch", "onnxruntime", "tokenizers"))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stream", folder, number]:
            stream(folder, int(number))
        case ["speed"]:
            with tempfile.TemporaryDirectory() as scratch:
                print(json.dumps(measure_speed(Path(scratch) / "bundle"), indent=1))
        case _:
            main()
