# SPDX-License-Identifier: Apache-2.0
# The simulator of RDNA GPUs: a stand-in for libamdhip64.so. Included by the Makefile.
#
# Variables: SIM_CXX, its compiler (any clang++ with C++20); SIM_ARCH, the -march of the machine that
# runs it.

SIM_CXX ?= $(firstword $(foreach c,clang++-19 clang++-20 clang++,$(shell command -v $(c) 2>/dev/null)))
SIM_ARCH ?= native
SIM_SRC := tools/rdnasim/engine
SIM_BUILD := build/sim
SIM_LIB := $(SIM_BUILD)/libamdhip64.so.6
# No optimisation that changes a bit of a result; errno and traps of arithmetic are not looked at.
SIM_FLAGS := -std=c++20 -O3 -g1 -march=$(SIM_ARCH) -ffp-contract=off -fno-math-errno \
             -fno-trapping-math -fno-strict-aliasing -fPIC -fvisibility=hidden -pthread \
             -Wall -Wextra -Werror -DRDNASIM_FOLDER='"$(CURDIR)/tools/rdnasim"'
SIM_OBJECTS := $(patsubst $(SIM_SRC)/%.cpp,$(SIM_BUILD)/%.o,$(wildcard $(SIM_SRC)/*.cpp))

.PHONY: sim

sim: $(SIM_LIB) ## the simulator: a stand-in for the HIP runtime

$(SIM_LIB): $(SIM_OBJECTS) $(SIM_SRC)/hip.map
	@echo "  LINK  $@"
	$(Q)$(SIM_CXX) -shared -o $@.tmp $(SIM_OBJECTS) -pthread -ldl \
	    -Wl,--version-script=$(SIM_SRC)/hip.map -Wl,-soname,$(@F) -Wl,-z,defs && mv $@.tmp $@
	@ln -sf $(@F) $(SIM_BUILD)/libamdhip64.so

$(SIM_BUILD)/%.o: $(SIM_SRC)/%.cpp mk/sim.mk
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(SIM_CXX) $(SIM_FLAGS) -MMD -MP -c $< -o $@

-include $(SIM_OBJECTS:.o=.d)

# ---- Running things on it ------------------------------------------------------------------------

SIM_ARCHS := gfx1030 gfx1100 gfx1201
SIM_DEVICES ?= V620,V620

.PHONY: test-sim test-sim-core sim-libraries sim-shell

# The library for all targets is made anew only if this checkout has one for fewer.
sim-libraries: sim $(VENV)/installed-test
	$(Q)$(MAKE) hip ARCHS="$(sort $(SIM_ARCHS) $(shell cat $(HIP_BUILD)/targets 2>/dev/null))"
	$(Q)cd tools/rdnasim && MYPYPATH=.. ../../$(IN_VENV)/mypy --config-file= --strict *.py

test-sim-core: sim-libraries ## the simulator: instructions, memory models, mutants of the kernels
	$(Q)RDNASIM_TEST=short $(IN_VENV)/pytest -q -p no:cacheprovider tests/sim \
	    --ignore=tests/sim/test_collective.py --ignore=tests/sim/test_speed.py

test-sim: sim-libraries ## likewise, and the tests of the collective on simulated GPUs
	$(Q)RDNASIM_TEST=$(or $(RDNASIM_TEST),short) tests/sim/run.sh $(IN_VENV)/pytest

sim-shell: sim ## a shell in which the HIP runtime is the simulator (SIM_DEVICES="V620,R9700")
	@echo "HIP programs run on $(SIM_DEVICES), simulated; see docs/rdnasim.md"
	@LD_LIBRARY_PATH=$(CURDIR)/$(SIM_BUILD) RDNASIM_DEVICES=$(SIM_DEVICES) $${SHELL:-/bin/sh}
