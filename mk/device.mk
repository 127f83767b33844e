# SPDX-License-Identifier: Apache-2.0
# The GPU libraries. Included by the Makefile, whose variables it uses.
#
# Device code is compiled to code objects, one for each target, and put into the library as data;
# the host side is compiled like everything else. Neither needs a header or library of ROCm or CUDA.
#
# Variables: ARCHS, the AMD targets, "gfx1030 gfx1100 gfx1101 gfx1200 gfx1201" for instance.
# DEVICE_CXX, their compiler: any clang++ that knows them, or hipcc. CUDA_ARCHS, the NVIDIA targets
# without their "sm_"; the last one goes in as PTX too, for newer GPUs. NVCC.

ARCHS ?= gfx1030
CUDA_ARCHS ?= 90
ROCM_PATH ?= /opt/rocm

ifeq ($(origin DEVICE_CXX),undefined)
DEVICE_CXX := $(firstword $(foreach c,$(ROCM_PATH)/llvm/bin/clang++ clang++-19 clang++-20 hipcc, \
                  $(shell command -v $(c) 2>/dev/null)))
endif
ifeq ($(origin NVCC),undefined)
NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
endif

FAULTY := $(if $(filter 1,$(FAULTS)),-faults)
HIP_BUILD := build/hip-$(notdir $(DEVICE_CXX))$(FAULTY)
CUDA_BUILD := build/cuda-$(notdir $(NVCC))$(FAULTY)
HIP_LIB := $(LIBDIR)/libhiprdnaar.so
CUDA_LIB := $(LIBDIR)/libhiprdnaar_cuda.so

# -nogpuinc, -nogpulib: no HIP headers, no device libraries; what the kernels need is in lane_amd.h.
# -mcode-object-version=4: what the runtimes of ROCm 5, 6 and 7 all load. -mno-cumode: see
# block_barrier() in lane_amd.h. -fno-gpu-flush-denormals-to-zero, -ffp-contract=off: results have
# the same bits everywhere.
HIP_FLAGS := -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib \
             -std=c++17 -O3 -ffp-contract=off -fno-gpu-flush-denormals-to-zero \
             -mcode-object-version=4 -mno-cumode -mno-wavefrontsize64 -Wall -Wextra -Werror
CUDA_FLAGS := -std=c++17 -O3 --fmad=false -Werror all-warnings
CUDA_TARGETS := $(CUDA_ARCHS:%=sm_%) compute_$(lastword $(CUDA_ARCHS))

DEVICE_SOURCES := $(filter-out %/platform_hip.cpp %/platform_cuda.cpp, \
                      $(wildcard $(SRC)/device/*.cpp))
GPU_OBJECTS := $(RUNTIME_OBJECTS) $(BUILD)/host/shared_memory.o \
               $(DEVICE_SOURCES:$(SRC)/%.cpp=$(BUILD)/%.o)
CODE_OBJECTS := $(ARCHS:%=$(HIP_BUILD)/kernels.%.co)

.PHONY: hip cuda

all: $(if $(DEVICE_CXX),hip) $(if $(NVCC),cuda)

hip: $(HIP_LIB) ## the library for AMD GPUs (ARCHS="gfx1030 ...")
	@echo "  $(HIP_LIB): $$($(PYTHON) tools/offload_bundle.py list $(HIP_LIB))"

cuda: $(CUDA_LIB) ## the library for NVIDIA GPUs (CUDA_ARCHS="90 ...")
	@echo "  $(CUDA_LIB): $(CUDA_TARGETS)"

ifneq ($(filter hip,$(MAKECMDGOALS)),)
ifeq ($(DEVICE_CXX),)
$(error no compiler for AMD GPUs: on Debian, apt install clang-19 lld-19, or hipcc (gfx1030 only))
endif
endif
ifneq ($(filter cuda,$(MAKECMDGOALS)),)
ifeq ($(NVCC),)
$(error nvcc is missing: install the CUDA toolkit, or name it by NVCC=)
endif
endif

# A change of targets makes the library anew.
$(HIP_BUILD)/targets $(CUDA_BUILD)/targets: FORCE
	@mkdir -p $(@D)
	@echo '$(TARGETS)' | cmp -s - $@ || echo '$(TARGETS)' > $@
$(HIP_BUILD)/targets: TARGETS = $(ARCHS)
$(CUDA_BUILD)/targets: TARGETS = $(CUDA_TARGETS)

# hipcc compiles for NVIDIA where it finds nvcc, unless it is told.
$(HIP_BUILD)/kernels.%.co: $(SRC)/device/kernels.cu mk/device.mk
	@mkdir -p $(@D)
	@echo "  HIP   $< ($*)"
	$(Q)HIP_PLATFORM=amd $(DEVICE_CXX) $(HIP_FLAGS) $(DEFINES) --offload-arch=$* \
	    -MMD -MP -MF $@.d -MT $@ -c $< -o $@

$(HIP_BUILD)/kernels.bundle: $(CODE_OBJECTS) $(HIP_BUILD)/targets tools/offload_bundle.py
	$(Q)$(PYTHON) tools/offload_bundle.py pack $@ $(CODE_OBJECTS)

$(CUDA_BUILD)/kernels.fatbin: $(SRC)/device/kernels.cu $(CUDA_BUILD)/targets mk/device.mk
	@mkdir -p $(@D)
	@echo "  CUDA  $< ($(CUDA_TARGETS))"
	$(Q)$(NVCC) $(CUDA_FLAGS) $(DEFINES) $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	    -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) \
	    -MD -MP -MF $@.d -fatbin $< -o $@

# In the sections where the platforms' tools look for device code.
$(HIP_BUILD)/kernel_image.o: IMAGE := $(HIP_BUILD)/kernels.bundle
$(HIP_BUILD)/kernel_image.o: SECTION := .hip_fatbin
$(CUDA_BUILD)/kernel_image.o: IMAGE := $(CUDA_BUILD)/kernels.fatbin
$(CUDA_BUILD)/kernel_image.o: SECTION := .nv_fatbin
$(HIP_BUILD)/kernel_image.o: $(HIP_BUILD)/kernels.bundle
$(CUDA_BUILD)/kernel_image.o: $(CUDA_BUILD)/kernels.fatbin
$(HIP_BUILD)/kernel_image.o $(CUDA_BUILD)/kernel_image.o: $(SRC)/device/kernel_image.S
	$(Q)$(CXX) -DRDNAAR_KERNEL_IMAGE='"$(IMAGE)"' -DRDNAAR_KERNEL_SECTION=$(SECTION) \
	    -c $(SRC)/device/kernel_image.S -o $@

$(BUILD)/device/platform_cuda.o: COMMON += -DRDNAAR_CUDA_TARGETS='"$(CUDA_TARGETS)"'
$(BUILD)/device/platform_cuda.o: $(CUDA_BUILD)/targets

$(HIP_LIB): $(GPU_OBJECTS) $(BUILD)/device/platform_hip.o $(HIP_BUILD)/kernel_image.o
$(CUDA_LIB): $(GPU_OBJECTS) $(BUILD)/device/platform_cuda.o $(CUDA_BUILD)/kernel_image.o
$(HIP_LIB) $(CUDA_LIB): libhiprdnaar/rdnaar.map
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CXX) -shared -o $@.tmp $(filter %.o,$^) $(OPT) $(SANITIZE) -pthread -ldl $(LINK_RUNTIME) \
	    -Wl,--version-script=libhiprdnaar/rdnaar.map -Wl,-soname,$(@F).$(ABI_MAJOR) \
	    -Wl,-z,relro,-z,now $(if $(SANITIZE),,-Wl,-z,defs) && mv $@.tmp $@
	@ln -sf $(@F) $@.$(ABI_MAJOR)  # the soname, for programs that link against it

-include $(wildcard $(HIP_BUILD)/*.d $(CUDA_BUILD)/*.d)
