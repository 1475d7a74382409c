"""Score with Ray Data: `python ray_data_score.py reviews/ scored/ review id`.

pip install 'capsar[bulk]' 'ray[data]'
"""

from __future__ import annotations

import sys
from typing import Any

import ray

import capsar


class Score:
    """An actor that loads the model once."""

    def __init__(self, options: capsar.ScoreOptions) -> None:
        self._options = options

    def __call__(self, batch: Any) -> Any:  # noqa: ANN401  (Arrow has no types)
        """Return the kept columns with `aspects` and `error`."""
        return capsar.score_batch(batch, self._options)


def main(source: str, target: str, text_column: str, kept: str, model: str = "base") -> None:
    """Read, score with actors of one core each, and write. One core is left to read and write."""
    options = capsar.ScoreOptions(model=model, text_column=text_column, keep=(kept,))
    ray.init(ignore_reinit_error=True)
    actors = max(1, int(ray.cluster_resources()["CPU"]) - 1)
    reviews = ray.data.read_parquet(source, columns=[kept, text_column])
    scored = reviews.map_batches(
        Score,
        fn_constructor_args=[options],
        batch_format="pyarrow",
        num_cpus=1,
        compute=ray.data.ActorPoolStrategy(size=actors),
    )
    scored.write_parquet(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
