# SPDX-License-Identifier: Apache-2.0
"""All-reduce over the 2 to 8 devices of one machine, for links without a fabric.

    def work(exchange):
        with pyrdnaar.Communicator(exchange.rank, exchange.world_size, exchange) as comm:
            return comm.all_reduce(numpy.ones(4, numpy.float32))

    if __name__ == "__main__":
        print(pyrdnaar.run_ranks(work, 4))

Importing this package loads no library and touches no device.
"""

from ._library import Library, available, load
from ._version import __version__
from .communicator import Communicator
from .config import Config, ConfigWarning
from .errors import (
    AbortError,
    ConfigError,
    Disabled,
    ExchangeError,
    InvalidArgument,
    LibraryError,
    NoDevice,
    OutOfMemory,
    RankError,
    RdnaarError,
    SelfTestError,
    StateError,
    TooLarge,
    Unsupported,
)
from .exchange import Exchange, MpiExchange, PipeExchange, TcpExchange, ThreadExchange
from .memory import DeviceBuffer, Event, Graph, Stream
from .ranks import run_ranks, run_threads
from .records import (
    AbortRecord,
    BuildInfo,
    DeviceInfo,
    LateRecord,
    Plan,
    ProbeResult,
    SelfTestReport,
)

__all__ = [
    "AbortError",
    "AbortRecord",
    "BuildInfo",
    "Communicator",
    "Config",
    "ConfigError",
    "ConfigWarning",
    "DeviceBuffer",
    "DeviceInfo",
    "Disabled",
    "Event",
    "Exchange",
    "ExchangeError",
    "Graph",
    "InvalidArgument",
    "LateRecord",
    "Library",
    "LibraryError",
    "MpiExchange",
    "NoDevice",
    "OutOfMemory",
    "PipeExchange",
    "Plan",
    "ProbeResult",
    "RankError",
    "RdnaarError",
    "SelfTestError",
    "SelfTestReport",
    "StateError",
    "Stream",
    "TcpExchange",
    "ThreadExchange",
    "TooLarge",
    "Unsupported",
    "__version__",
    "available",
    "load",
    "run_ranks",
    "run_threads",
]
