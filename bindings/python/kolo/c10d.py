"""kolo as a backend of ``torch.distributed``.

    torch.distributed.init_process_group("kolo")

torch finds the backend by an entry point; ``import kolo.c10d`` registers it, too. The default group
becomes kolo's world, which ``destroy_process_group()`` ends. Other groups are process sets of it,
which their members make alone.

Where nothing sets ``RANK`` and ``MASTER_ADDR``, as under mpirun and srun, ranks find each other by
what has started them, as those of a C++ program do:

    import kolo.c10d
    torch.distributed.init_process_group("kolo", init_method="kolo://")
"""
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed
from torch.distributed.rendezvous import register_rendezvous_handler

from kolo._at_exit import end_at_exit
from kolo._library import extension as _extension
from kolo.errors import KoloArgumentError, KoloError

ProcessGroupKolo: type = _extension.ProcessGroupKolo

__all__ = ["KoloError", "ProcessGroupKolo", "register"]

_NAME = "kolo"
_DEVICES = ["cpu", "cuda"]


def _create(options: Any, pg_options: object | None) -> Any:
    """Creates a group's backend, as ``torch.distributed`` describes the group."""
    end_at_exit()
    group = getattr(options, "process_group", None)
    device_id = group.bound_device_id if group is not None else None
    device = device_id.index if device_id is not None and device_id.type == "cuda" else None
    if getattr(options, "enable_reconfigure", False):
        if device is not None:
            raise KoloArgumentError(f"device_id is {device_id}, but a group that waits for reconfigure() takes its "
                                    "device by KOLO_DEVICE; leave device_id out", "invalid argument")
        return _extension.create_group_without_ranks()
    timeout: timedelta = options.timeout
    return _extension.create_group(options.store, options.group_rank, options.group_size,
                                   list(options.global_ranks_in_group), timeout, device)


def _rendezvous(url: str, timeout: timedelta = torch.distributed.default_pg_timeout,
                **_: Any) -> Iterator[tuple[torch.distributed.Store, int, int]]:
    """``kolo://``: kolo begins its world, over which the ranks learn where torch's store is."""
    if url != "kolo://":
        raise ValueError(f"init_method {url!r}: kolo:// takes nothing more; give what finds the ranks in the "
                         "environment (KOLO_INIT_METHOD and others, docs/launching.md)")
    rank, size = _extension.begin_world()
    store, place = None, ""
    if rank == 0:
        host = _extension.own_address()
        store = torch.distributed.TCPStore(host, 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
        place = f"{host} {store.port}"
    host, port = _extension.broadcast_text(place, 0).split()
    if store is None:
        store = torch.distributed.TCPStore(host, int(port), size, is_master=False, timeout=timeout,
                                           wait_for_workers=False)
    yield store, rank, size
    raise RuntimeError("kolo:// is asked once")


def register() -> None:
    """Registers the backend "kolo" for tensors on the CPU and on CUDA devices.

    Importing this module does so; a further call has no effect.
    """
    backend = torch.distributed.Backend
    if _NAME.upper() not in backend._plugins:
        backend.register_backend(_NAME, _create, extended_api=True, devices=_DEVICES)
        register_rendezvous_handler(_NAME, _rendezvous)


register()
