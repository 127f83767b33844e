# SPDX-License-Identifier: Apache-2.0
# Long runs: everything that can go wrong, many times, and counted. Included by the Makefile.
#
#     make soak          the full form, over an hour on two CPUs; writes docs/reliability.md
#     make soak JOBS=16  on a machine with many
#     make soak-short    a minute of everything, without the fuzzers: for CI

FAULTS_LIB := build/host-$(notdir $(CXX))-faults/libhiprdnaar_host.so

.PHONY: soak soak-short soak-libraries

# glibc gives threads memory of their own, and keeps what they leave: with many of them that looks like a
# leak. Two such places are enough here.
soak soak-short: export MALLOC_ARENA_MAX = 2

soak: soak-libraries fuzz ## everything that can go wrong, many times; writes docs/reliability.md
	$(Q)$(IN_VENV)/python tools/soak.py --write --jobs $(or $(JOBS),1)

soak-short: soak-libraries ## a minute of the same
	$(Q)$(IN_VENV)/python tools/soak.py --short

# The default library, and the one whose steps can be made to fail.
soak-libraries: $(VENV)/installed host
	$(Q)$(MAKE) host FAULTS=1
