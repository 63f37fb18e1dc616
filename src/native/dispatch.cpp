// Chooses the table of kernels for the processor at hand, once, when the module is imported.
#include "dispatch.hpp"

#include <cstring>

namespace gaussguru {

const Kernels* find_kernels(const char* name) {
    const bool any = name == nullptr || *name == '\0';
#ifdef GAUSSGURU_X86_64_V3
    __builtin_cpu_init();
    const bool capable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                         __builtin_cpu_supports("bmi2");
    if (capable && (any || std::strcmp(name, x86_64_v3::kernels().name) == 0)) return &x86_64_v3::kernels();
#endif
    if (any || std::strcmp(name, baseline::kernels().name) == 0) return &baseline::kernels();
    return nullptr;
}

}  // namespace gaussguru
