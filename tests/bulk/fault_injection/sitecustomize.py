"""Faults for worker processes: with this folder on the path, some texts make the model fail."""

import os
import signal
from collections.abc import Iterable, Iterator
from typing import Any

from capsar.inference.analyzer import Analyzer

_analyze_stream = Analyzer.analyze_stream


def _analyze_with_faults(self: Analyzer, texts: Iterable[str], **options: Any) -> Iterator[Any]:
    def checked() -> Iterator[str]:
        for text in texts:
            if "poison that raises" in text:
                raise RuntimeError("injected")
            if "poison that kills" in text:
                os.kill(os.getpid(), signal.SIGKILL)
            yield text

    return _analyze_stream(self, checked(), **options)


Analyzer.analyze_stream = _analyze_with_faults  # type: ignore[method-assign]
