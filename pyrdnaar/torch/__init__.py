# SPDX-License-Identifier: Apache-2.0
"""All-reduce of torch tensors.

    reduce = pyrdnaar.torch.RdnaAllReduce(group, device)
    y = reduce.all_reduce(x)

Tensors are passed to the library as addresses, so one library works with every build of torch. This
is the only part of pyrdnaar that imports torch.
"""

from .adapter import RdnaAllReduce
from .exchange import TorchExchange
from .hierarchical import HierarchicalAllReduce
from .process_group import BACKEND, Options, RoutedGroup, routed

__all__ = [
    "BACKEND",
    "HierarchicalAllReduce",
    "Options",
    "RdnaAllReduce",
    "RoutedGroup",
    "TorchExchange",
    "routed",
]
