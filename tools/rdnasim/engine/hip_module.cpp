// SPDX-License-Identifier: Apache-2.0
// Modules and launches.
#include "hip_api.h"
#include "modules.h"

using namespace rdnasim;

namespace {

constexpr int kRegisters = 4;  // HIP_FUNC_ATTRIBUTE_NUM_REGS

// Hidden arguments tell a kernel its grid; the others that compilers know are zero.
void put_argument(std::vector<u8> &to, const Argument &a, const void *value, const Command &c) {
    u32 x = 0;
    if (a.kind == kByValue) {
        memcpy(&to[a.offset], value, a.size);
        return;
    }
    if (a.kind >= kBlockCount && a.kind < kBlockCount + 3) x = c.grid[a.kind - kBlockCount];
    if (a.kind >= kGroupSize && a.kind < kGroupSize + 3) x = c.block[a.kind - kGroupSize];
    if (a.kind == kGridDimensions) x = 1 + (c.grid[1] > 1) + (c.grid[2] > 1);
    memcpy(&to[a.offset], &x, std::min(a.size, u32(sizeof x)));
}

}  // namespace

HIP_EXPORT int hipModuleLoadData(void **module, const void *image) {
    const Device *device = device_at(current_device());
    if (module == nullptr || image == nullptr) return noted(hipErrorInvalidValue);
    if (device == nullptr) return noted(hipErrorNoDevice);
    auto loaded = std::make_unique<Module>();
    switch (load_module(image, device->model.target, *loaded)) {
        case LoadResult::kNoCodeForDevice: return noted(hipErrorNoBinaryForGpu);
        case LoadResult::kFailed: return noted(hipErrorSharedObjectInitFailed);
        case LoadResult::kLoaded: break;
    }
    *module = loaded.release();
    return hipSuccess;
}

HIP_EXPORT int hipModuleUnload(void *module) {
    if (module == nullptr) return noted(hipErrorInvalidHandle);
    Queue::get().wait_all(u32(current_device()));
    delete static_cast<Module *>(module);
    return hipSuccess;
}

HIP_EXPORT int hipModuleGetFunction(void **function, void *module, const char *name) {
    if (function == nullptr || module == nullptr || name == nullptr)
        return noted(hipErrorInvalidValue);
    const Kernel *kernel = static_cast<Module *>(module)->program->find(name);
    *function = const_cast<Kernel *>(kernel);
    return kernel != nullptr ? hipSuccess : noted(hipErrorNotFound);
}

HIP_EXPORT int hipFuncGetAttribute(int *value, int attribute, void *function) {
    if (value == nullptr || function == nullptr || attribute != kRegisters)
        return noted(hipErrorInvalidValue);
    *value = int(static_cast<Kernel *>(function)->vgprs);
    return hipSuccess;
}

HIP_EXPORT int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, void *handle,
                                     void **parameters, void **extra) {
    Stream *stream = stream_of(handle);
    if (function == nullptr || stream == nullptr) return noted(hipErrorInvalidHandle);
    const u64 threads = u64(block_x) * block_y * block_z;
    if (extra != nullptr || threads == 0 || threads > 1024 || u64(grid_x) * grid_y * grid_z == 0)
        return noted(hipErrorInvalidValue);
    auto command = std::make_shared<Command>();
    command->kind = Command::kLaunch;
    command->kernel = static_cast<Kernel *>(function);
    const u32 grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    std::copy(grid, grid + 3, command->grid);
    std::copy(block, block + 3, command->block);
    command->shared_bytes = shared_bytes;
    command->arguments.resize(command->kernel->kernarg_bytes + 64);
    for (const Argument &a : command->kernel->arguments)
        put_argument(command->arguments, a, a.kind == kByValue ? *parameters++ : nullptr, *command);
    return Queue::get().submit(stream, command) ? hipSuccess
                                                : noted(hipErrorStreamCaptureUnsupported);
}
