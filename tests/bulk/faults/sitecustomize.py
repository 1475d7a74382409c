"""Faults for worker processes: with this folder on their path, some texts are poison."""

import os
import signal
from collections.abc import Iterable, Iterator
from typing import Any

from capsar.analyze import Analyzer

_healthy = Analyzer.analyze_stream


def _poisoned(self: Analyzer, texts: Iterable[str], **options: Any) -> Iterator[Any]:
    def tasted() -> Iterator[str]:
        for text in texts:
            if "poison that raises" in text:
                raise RuntimeError("injected")
            if "poison that kills" in text:
                os.kill(os.getpid(), signal.SIGKILL)
            yield text

    return _healthy(self, tasted(), **options)


Analyzer.analyze_stream = _poisoned  # type: ignore[method-assign]
