# hiprdnaar: `make` builds what this machine can, `make help` lists the targets.
#
# Variables: V=1 shows commands. DEBUG=1, ASAN=1, TSAN=1, UBSAN=1 choose a variant (ASAN and UBSAN may
# be combined). FAULTS=1 builds libraries whose links and steps can be made to fail, for tests. CXX chooses the compiler of the host library.

MAKEFLAGS += --no-builtin-rules --no-builtin-variables
ifneq ($(origin CXX),command line)
ifneq ($(origin CXX),environment)
CXX := g++
endif
endif
PYTHON ?= python3
V ?= 0
Q := $(if $(filter 1,$(V)),,@)

# ---- Variants: objects live in a folder named by compiler and flags ---------------------------
VARIANT :=
OPT := -O3 -g1
SANITIZE :=
ifeq ($(DEBUG),1)
VARIANT := $(VARIANT)-debug
OPT := -O0 -g3
endif
ifeq ($(ASAN),1)
VARIANT := $(VARIANT)-asan
SANITIZE += -fsanitize=address -fno-omit-frame-pointer
endif
ifeq ($(UBSAN),1)
VARIANT := $(VARIANT)-ubsan
SANITIZE += -fsanitize=undefined -fno-sanitize-recover=all
endif
ifeq ($(FAULTS),1)
VARIANT := $(VARIANT)-faults
DEFINES := -DRDNAAR_FAULTS=1
endif
ifeq ($(TSAN),1)
VARIANT := $(VARIANT)-tsan
SANITIZE += -fsanitize=thread
ifneq ($(filter 1,$(ASAN) $(UBSAN)),)
$(error TSAN=1 cannot be combined with ASAN=1 or UBSAN=1)
endif
endif

# -O1: at -O3 the sanitizers' checks make the kernels take minutes to compile.
ifneq ($(SANITIZE),)
OPT := -O1 -g1
endif

BUILD := build/host-$(notdir $(CXX))$(VARIANT)
# The default variant is what the package and the tests load.
LIBDIR := $(if $(VARIANT),$(BUILD),build/lib)

SRC := libhiprdnaar/src
INCLUDES := -Ilibhiprdnaar/include
# -ffp-contract=off: a fused multiply-add would round differently from one build to the next.
# -Wno-maybe-uninitialized: of arrays of kMaxW only the first `world` elements are set and used, which
# g++ cannot know; the sanitizer builds check what runs. (clang++ does not know that warning.)
COMMON := -std=c++17 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -ffp-contract=off \
          -Wall -Wextra -Werror -Wno-unknown-warning-option -Wno-psabi -Wno-maybe-uninitialized -pthread $(OPT) $(SANITIZE) $(DEFINES) $(INCLUDES) -MMD -MP
# A library without sanitizers brings its own C++ runtime, so that it loads anywhere.
LINK_RUNTIME := $(if $(SANITIZE),,-static-libstdc++ -static-libgcc)

ifneq ($(VARIANT),)
ifneq ($(filter demo test,$(MAKECMDGOALS)),)
$(error demo and test use the default build: leave DEBUG, ASAN, UBSAN, TSAN and FAULTS out, or make test-sanitize)
endif
endif

ifneq ($(filter-out help clean,$(or $(MAKECMDGOALS),all)),)
ifeq ($(shell command -v $(CXX)),)
$(error $(CXX) is missing: on Debian, apt install g++, or name another compiler by CXX=)
endif
ifeq ($(shell command -v $(PYTHON)),)
$(error $(PYTHON) is missing: on Debian, apt install python3 python3-venv)
endif
endif
# -I: the folder of the script is the package, whose modules must not stand in for Python's.
DIGEST := $(shell $(PYTHON) -I pyrdnaar/source_digest.py libhiprdnaar)
REVISION := $(shell git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null)

RUNTIME_OBJECTS := $(patsubst $(SRC)/%.cpp,$(BUILD)/%.o,$(wildcard $(SRC)/runtime/*.cpp \
                       $(if $(filter 1,$(FAULTS)),$(SRC)/faults/*.cpp)))
HOST_OBJECTS := $(patsubst $(SRC)/%.cpp,$(BUILD)/%.o,$(filter-out %/kernels.cpp,$(wildcard $(SRC)/host/*.cpp)))
ISAS := Baseline
ifeq ($(shell uname -m),x86_64)
ISAS += Avx2 Avx512
endif
ISA_FLAGS_Baseline :=
ISA_FLAGS_Avx2 := -mavx2 -mf16c
ISA_FLAGS_Avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mf16c -mprefer-vector-width=512
KERNEL_OBJECTS := $(ISAS:%=$(BUILD)/host/kernels.%.o)
HOST_LIB := $(LIBDIR)/libhiprdnaar_host.so
ABI_MAJOR := 1

VENV := .venv
IN_VENV := $(VENV)/bin

.PHONY: all host demo test test-sanitize lint format clean help FORCE
.DEFAULT_GOAL := all

all: host ## build what this machine can

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

host: $(HOST_LIB) ## the library for CPU ranks

$(HOST_LIB): $(RUNTIME_OBJECTS) $(HOST_OBJECTS) $(KERNEL_OBJECTS) libhiprdnaar/rdnaar.map
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) -shared -o $@.tmp $(filter %.o,$^) $(OPT) $(SANITIZE) -pthread $(LINK_RUNTIME) \
	    -Wl,--version-script=libhiprdnaar/rdnaar.map -Wl,-soname,libhiprdnaar_host.so.$(ABI_MAJOR) \
	    -Wl,-z,relro,-z,now $(if $(SANITIZE),,-Wl,-z,defs) && mv $@.tmp $@
	@ln -sf $(@F) $@.$(ABI_MAJOR)  # the soname, for programs that link against it

$(BUILD)/host/kernels.%.o: $(SRC)/host/kernels.cpp Makefile
	@mkdir -p $(@D)
	@echo "  CXX   $< ($*)"
	$(Q)$(CXX) $(COMMON) $(ISA_FLAGS_$*) -DRDNAAR_ISA=$* -c $< -o $@

$(BUILD)/%.o: $(SRC)/%.cpp Makefile
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(COMMON) -c $< -o $@

# Compiled anew when the digest or the revision changes.
$(BUILD)/runtime/build_info.o: COMMON += -DRDNAAR_SOURCE_DIGEST='"$(DIGEST)"' -DRDNAAR_GIT_REVISION='"$(REVISION)"'
$(BUILD)/runtime/build_info.o: $(BUILD)/provenance
$(BUILD)/provenance: FORCE
	@mkdir -p $(@D)
	@echo '$(DIGEST) $(REVISION)' | cmp -s - $@ || echo '$(DIGEST) $(REVISION)' > $@

-include $(wildcard $(BUILD)/*/*.d)

# ---- Programs of the tests ---------------------------------------------------------------------

$(BUILD)/isa_test: tests/native/isa_test.cpp $(RUNTIME_OBJECTS) $(HOST_OBJECTS) $(KERNEL_OBJECTS)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(COMMON) -o $@ $< $(filter %.o,$^)

# ---- Python: a virtual environment of this checkout ---------------------------------------------

$(IN_VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	    || { echo "Python 3.10 or newer is needed; $(PYTHON) is $$($(PYTHON) --version)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	    || { echo "$(PYTHON) has no venv: on Debian, apt install python3-venv"; exit 1; }
	@echo "  VENV  $(VENV)"
	$(Q)$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml setup.py $(IN_VENV)/python | $(HOST_LIB)
	@echo "  PIP   pyrdnaar"
	$(Q)$(IN_VENV)/pip install --quiet --disable-pip-version-check -e . && touch $@

$(VENV)/installed-test: $(VENV)/installed
	@echo "  PIP   pyrdnaar[test]"
	$(Q)$(IN_VENV)/pip install --quiet --disable-pip-version-check -e '.[test]' && touch $@

demo: $(VENV)/installed host ## all-reduce real data on 4 ranks and check every element
	$(Q)$(IN_VENV)/pyrdnaar demo --ranks 4

SOURCES := $(shell find libhiprdnaar tests tools -name '*.h' -o -name '*.cpp' -o -name '*.hip' -o -name '*.cu')

lint: $(VENV)/installed-test ## formatters, linters and the type checker
	$(Q)$(IN_VENV)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	$(Q)$(IN_VENV)/ruff check --quiet .
	$(Q)$(IN_VENV)/mypy
	$(Q)$(IN_VENV)/clang-format --dry-run -Werror $(SOURCES) || { echo "run: make format"; exit 1; }

format: $(VENV)/installed-test ## format all sources
	$(Q)$(IN_VENV)/ruff format --quiet .
	$(Q)$(IN_VENV)/clang-format -i $(SOURCES)

test: lint host $(BUILD)/isa_test ## everything that runs without a GPU
	$(Q)$(MAKE) host FAULTS=1
	$(Q)$(BUILD)/isa_test
	$(Q)$(IN_VENV)/pytest

# Megabytes over many ranks take minutes when every word is an atomic access; 2 to 4 ranks show as much.
SLOW_TSAN := sizes_around_limits and (5 or 6 or 7 or 8)

# The same tests on sanitizer builds. Leak detection is off: the interpreter keeps memory until exit;
# tests/host counts what the library holds.
test-sanitize: $(VENV)/installed-test ## the tests of the collective under ASan, UBSan and TSan
	$(Q)$(MAKE) host ASAN=1 UBSAN=1
	$(Q)tests/sanitize.sh build/host-$(notdir $(CXX))-asan-ubsan "asan ubsan" $(IN_VENV)/pytest
	$(Q)$(MAKE) host TSAN=1
	$(Q)tests/sanitize.sh build/host-$(notdir $(CXX))-tsan tsan $(IN_VENV)/pytest -k "not ($(SLOW_TSAN))"

include mk/device.mk
include mk/fuzz.mk
include mk/soak.mk
include mk/explorer.mk
include mk/instructions.mk
include mk/sim.mk

clean: ## remove everything that was built
	rm -rf build .venv
