# SPDX-License-Identifier: Apache-2.0
"""The release of this package, the same as RDNAAR_VERSION_STRING of the library's sources."""

__version__ = "0.1.0"
