"""One process or many: joining them, and the accelerator that hides the difference."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from capsar.errors import MissingExtraError

if TYPE_CHECKING:
    from accelerate import Accelerator


def make_accelerator() -> Accelerator:
    """Return what hides one process or many, on whatever device there is."""
    try:
        from accelerate import Accelerator, DistributedDataParallelKwargs
    except ImportError as error:
        raise MissingExtraError("train", "Training") from error
    _join_processes()
    # Word vectors are the same everywhere already; sending them at every step would cost much.
    handlers = [DistributedDataParallelKwargs(broadcast_buffers=False)]
    return Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=handlers)


def _join_processes() -> None:
    """Under `torchrun`, form the process group with names that no earlier attempt has used.

    After a restart torch would read the addresses of the processes that died from the launcher's
    store, if it comes to read them before the new ones are written.
    """
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if attempt is None or torch.distributed.is_initialized():
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    launcher_has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not launcher_has_store,
    )
    torch.distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        store=PrefixStore(f"attempt-{attempt}", store),
        rank=rank,
        world_size=world,
    )
