"""Batch norm over the batches of all ranks."""
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from kolo._library import extension
from kolo.torch.process_sets import ProcessSet, global_process_set, set_id

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """A batch norm that in training uses the mean and variance over the batches of all ranks.

    Takes inputs [n, channels, …] of two or more dimensions. Batches may differ in size between ranks, and may be empty.
    In training, forward and its backward are collective. Parameters, buffers and their names are those of torch's
    BatchNorm, so files fit both.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_set: ProcessSet = global_process_set) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return extension.sync_batch_norm(input, self.weight, self.bias, self.running_mean, self.running_var,
                                          self.num_batches_tracked, self.num_features, self.eps, self.momentum,
                                          self.training, set_id(self.process_set))
