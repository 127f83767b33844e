# SPDX-License-Identifier: Apache-2.0
# Fuzzers of everything that reads bytes from outside. Included by the Makefile.
#
#     make fuzz SECONDS=60        each harness for so long; `make fuzz-short` is what CI runs
#
# An input that fails is kept under $(FUZZ_BUILD)/found; give it to the harness to run it again.

FUZZ_CXX ?= clang++-19
SECONDS ?= 60
FUZZ_SHORT_SECONDS := 8

FUZZ_BUILD := build/fuzz-$(notdir $(FUZZ_CXX))
FUZZ_HARNESSES := blob config
FUZZ_CHECKS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FUZZ_FLAGS := $(COMMON) -O1 -g $(FUZZ_CHECKS)
FUZZ_OBJECTS := $(filter-out %/kernels.o,$(patsubst $(SRC)/%.cpp,$(FUZZ_BUILD)/%.o, \
                    $(wildcard $(SRC)/runtime/*.cpp $(SRC)/host/*.cpp))) \
                $(ISAS:%=$(FUZZ_BUILD)/host/kernels.%.o)

.PHONY: fuzz fuzz-short

ifneq ($(filter fuzz fuzz-short,$(MAKECMDGOALS)),)
ifneq ($(VARIANT),)
$(error fuzz has its own sanitizers: leave DEBUG, ASAN, UBSAN and TSAN out)
endif
ifeq ($(shell command -v $(FUZZ_CXX)),)
$(error $(FUZZ_CXX) is missing: on Debian, apt install clang-19 libclang-rt-19-dev)
endif
endif

fuzz: $(FUZZ_HARNESSES:%=$(FUZZ_BUILD)/%_fuzz) $(FUZZ_BUILD)/seeds ## fuzz the parsers (SECONDS=60 for each)
	$(Q)tests/fuzz/run.sh $(FUZZ_BUILD) $(SECONDS) $(FUZZ_HARNESSES)

fuzz-short: SECONDS := $(FUZZ_SHORT_SECONDS)
fuzz-short: fuzz ## the same for a few seconds

$(FUZZ_BUILD)/%_fuzz: tests/fuzz/%_fuzz.cpp tests/fuzz/oracle.h $(FUZZ_OBJECTS)
	@echo "  FUZZ  $<"
	$(Q)$(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $< $(FUZZ_OBJECTS)

$(FUZZ_BUILD)/seeds: tests/fuzz/seeds.cpp $(FUZZ_OBJECTS)
	$(Q)$(FUZZ_CXX) $(FUZZ_FLAGS) -o $@ $< $(FUZZ_OBJECTS)

# The kernels read no bytes from outside: they are compiled without checks, which take minutes.
$(FUZZ_BUILD)/host/kernels.%.o: $(SRC)/host/kernels.cpp Makefile mk/fuzz.mk
	@mkdir -p $(@D)
	@echo "  CXX   $< ($*)"
	$(Q)$(FUZZ_CXX) $(COMMON) -O1 $(ISA_FLAGS_$*) -DRDNAAR_ISA=$* -c $< -o $@

$(FUZZ_BUILD)/%.o: $(SRC)/%.cpp Makefile mk/fuzz.mk
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c $< -o $@

$(FUZZ_BUILD)/runtime/build_info.o: FUZZ_FLAGS += -DRDNAAR_SOURCE_DIGEST='"$(DIGEST)"' -DRDNAAR_GIT_REVISION='"$(REVISION)"'
$(FUZZ_BUILD)/runtime/build_info.o: $(BUILD)/provenance

-include $(wildcard $(FUZZ_BUILD)/*/*.d $(FUZZ_BUILD)/*.d)
